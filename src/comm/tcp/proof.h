#pragma once
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "comm/tcp/deadline.h"
#include "comm/tcp/key.h"
#include "comm/tcp/wire.h"

namespace ds {

// How two ranks prove to each other that they hold a key which neither sends (ADR 19):
//
//   caller                                   door
//   Hello: who calls whom, a draw     ->
//                                     <-     its own draw
//   code("caller", both)              ->     compares; from here on the caller is no stranger
//                                     <-     code("door", both)
//   compares; from here on the door is the one that was called
//
// A code is an HMAC under the key over the whole hello and the door's draw, so it answers this
// connection alone: it cannot be replayed, nor be used for another rank, size, job or purpose. A
// caller's code never equals a door's, so nothing can be reflected. Who has not proved the key
// learns 32 random bytes.

enum class Purpose : uint32_t { meeting = 1, mesh };

constexpr size_t kMostJob = 87;
constexpr char kMagic[8] = "dstcp01";

struct Hello {
  char magic[sizeof kMagic] = {};
  Purpose purpose = Purpose::meeting;
  int32_t from = 0, to = 0;  // ranks
  int32_t size = 0;
  char job[kMostJob + 1] = {};
  Bytes32 draw{};
};

// Why calls in a row have failed: the reason of the one that came farthest, which says the most.
struct Failure {
  int step = -1;
  std::string reason;
  void add(int new_step, const std::string& reason) {
    if (new_step >= step) *this = {new_step, reason};
  }
};

// Connects to the door of rank hello.to and proves the key to it, within a few seconds and before
// the deadline. Draws for the hello. Nothing, with the reason in `failure`, when nobody answers
// there, or when a side does not hold the key: it may be worth another try.
std::optional<Channel> call(const std::string& address, int port, const Trust& trust, Hello hello,
                            Deadline deadline, Failure& failure);

// Where a rank listens for others. Strangers are dropped without a word: who has not proved the key
// within a few seconds, who says anything else than a hello to this rank, and the oldest when there
// are too many.
class Door {
 public:
  struct Arrival {
    Hello hello;
    Channel channel;
  };
  Door(Socket listener, const Trust& trust, int own_rank, int ranks)
      : listener_(std::move(listener)),
        trust_(trust),
        own_rank_(own_rank),
        most_guests_(std::max(kLeastGuests, 2 * static_cast<size_t>(ranks))) {}

  // Serves whoever is there and waits at most that long for someone; those who have proved the key.
  std::vector<Arrival> serve(int milliseconds);
  // "" or how many strangers were dropped, and why the first of them.
  std::string about_strangers() const;

 private:
  struct Guest {
    Socket socket;
    Deadline until;
    std::string received;
    std::optional<Hello> hello;  // it has been sent our draw and owes its proof
    Bytes32 draw{};
  };
  enum class Answer { waits, stranger, proved };

  static constexpr size_t kLeastGuests = 128;

  void admit();
  void make_room();
  Answer listen_to(Guest& guest);
  Answer challenge(Guest& guest);
  Answer check(Guest& guest);
  Answer turn_away(const char* reason);
  void drop(const Guest& guest);

  Socket listener_;
  const Trust trust_;
  const int own_rank_;
  const size_t most_guests_;  // who have not proved the key yet
  std::vector<Guest> guests_;
  std::vector<Arrival> arrivals_;
  const char* reason_ = "";  // of the last guest who was turned away
  size_t strangers_ = 0;
  std::string first_stranger_;  // where it came from, and why it was dropped
};

}  // namespace ds
