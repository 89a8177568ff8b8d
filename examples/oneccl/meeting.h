// The ranks of a group find each other by a table of keys and values at one port, which exists
// while ranks join.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <thread>

namespace oneccl {

using Clock = std::chrono::steady_clock;

// A descriptor that is closed with its owner.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& other) noexcept;
  Socket& operator=(Socket&& other) noexcept;
  ~Socket();
  int fd() const { return fd_; }

 private:
  int fd_ = -1;
};

// Rank 0 keeps the table on a thread of its own, which ends with the meeting. All ranks, including
// rank 0, ask it over TCP. Nothing proves who asks: the port must be out of reach for strangers.
// Every function throws std::runtime_error when the deadline has passed or a connection breaks.
class Meeting {
 public:
  // Returns when all ranks have connected to `address`, HOST:PORT. An empty address means
  // MASTER_ADDR and MASTER_PORT.
  Meeting(const std::string& address, int rank, int size, Clock::time_point deadline);
  Meeting(const Meeting&) = delete;

  // Returns the value of a key, or "" if nobody has set it.
  std::string get(const std::string& key);
  void set(const std::string& key, const std::string& value);
  // Returns when all ranks have called it.
  void end();

 private:
  std::string ask(char what, const std::string& key, const std::string& value);

  Clock::time_point deadline_;
  // The thread of the table, in rank 0 only. It ends when all ranks have called end(), when one
  // leaves after all have come, or at the deadline.
  std::jthread table_;
  Socket socket_;
};

}  // namespace oneccl
