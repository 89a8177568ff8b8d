#pragma once
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "comm/tcp/key.h"

namespace ds {

// The place where the ranks of a job find each other: rank 0 listens there until all ranks have
// joined.
struct MeetingPoint {
  // Name or address of rank 0's host. "": rank 0 is found through `file`.
  std::string host;
  int port = 0;
  // A file in a folder that all ranks can access, in which rank 0 writes where it listens.
  std::string file;
  // The name of the job; ranks of other jobs are refused.
  std::string job;
};

// Parses "HOST:PORT", "HOST:PORT/JOB" or "/PATH"; "" means MASTER_ADDR and MASTER_PORT. Throws
// std::runtime_error.
MeetingPoint parse_meeting_point(const std::string& address);

// Returns the point as "HOST:PORT" or as the path of its file.
std::string text_of(const MeetingPoint& point);

// Returns the address of this host at which rank 0 listens, or everywhere() (all addresses) if the
// address at which other hosts reach this host is not known. For HOST:PORT without a key, it is a
// loopback address. Throws std::runtime_error if HOST is another host and there is no key, or if it
// is another host and torchrun runs its own store.
std::string listening_address(const MeetingPoint& point, JobKey::Kind key);

// Returns a clause to append to an error of rank 0, "; rank 0 runs on this host, but ...", if the
// point is on another host; otherwise "".
std::string elsewhere(const MeetingPoint& point);

// Returns the value of GLOO_SOCKET_IFNAME, or "".
std::string chosen_interface();

// The addresses, port and key with which the other ranks connect to rank 0.
struct Reach {
  // Addresses to try, in this order.
  std::vector<std::string> addresses;
  int port = 0;
  Trust trust;
};

// The file in which rank 0 writes where it listens, if the point has one. The destructor removes
// the file unless another process has replaced it. Only this user can read the file, so without a
// key of the job (Kind::missing) it also contains a fresh key.
class Publication {
 public:
  Publication(const MeetingPoint& point, const std::string& address, int port,
              const std::optional<std::string>& key_text);
  ~Publication();
  Publication(const Publication&) = delete;
  Publication& operator=(const Publication&) = delete;

 private:
  std::string file_;
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

// Returns how rank 0 can be reached now, or nullopt, with the reason in `reason`, if its file
// cannot be used: it does not exist yet, is not private to this user, is malformed or has another
// kind of key. Throws std::runtime_error if rank 0's host has no address, or if HOST:PORT is on
// another host and the ranks have no key.
std::optional<Reach> reach_of(const MeetingPoint& point, const JobKey& key, std::string& reason);

}  // namespace ds
