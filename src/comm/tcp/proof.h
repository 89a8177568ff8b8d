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

// Two ranks prove to each other that they have the same key, which neither of them sends (ADR 19).
// The caller connects; the door is the rank that listens. In this order,
// 1. the caller sends a Hello, which says who calls whom and contains a nonce,
// 2. the door sends a nonce,
// 3. the caller sends code("caller", hello and nonce), which the door compares; the caller is now
//    known,
// 4. the door sends code("door", hello and nonce), which the caller compares; the door is now
//    known.
//
// A code is an HMAC under the key over the whole hello and the door's nonce, so it is valid for
// this connection only: it cannot be replayed, nor be used for another rank, size, job or purpose.
// A caller's code never equals a door's, so nothing can be reflected. A stranger who has not proved
// the key learns only 32 random bytes.

enum class Purpose : uint32_t { meeting = 1, mesh };

constexpr size_t kMostJob = 87;
constexpr char kMagic[8] = "dstcp01";

struct Hello {
  char magic[sizeof kMagic] = {};
  Purpose purpose = Purpose::meeting;
  // The ranks of the caller and of the door.
  int32_t from = 0, to = 0;
  int32_t size = 0;
  char job[kMostJob + 1] = {};
  Bytes32 draw{};
};

// The reason why several consecutive calls have failed. The call that got farthest in the protocol
// is the most informative, so its reason is kept.
struct Failure {
  int step = -1;
  std::string reason;
  void add(int new_step, const std::string& reason) {
    if (new_step >= step) *this = {new_step, reason};
  }
};

// Connects to the door of rank hello.to and proves the key to it, within a few seconds and before
// the deadline. The function sets hello.magic and hello.draw itself. Returns nullopt, with the
// reason in `failure`, if nobody answers or one side does not have the key. Another try may
// succeed.
std::optional<Channel> call(const std::string& address, int port, const Trust& trust, Hello hello,
                            Deadline deadline, Failure& failure);

// The listening side of a rank. Strangers are disconnected without an answer: those who send a
// wrong proof or none within a few seconds, those whose first bytes are not a hello to this rank,
// and one of them whenever there are too many.
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

  // Accepts and serves connections. Waits at most `milliseconds` for the first event. Returns the
  // callers that have proved the key.
  std::vector<Arrival> serve(int milliseconds);
  // Returns a clause that says how many strangers were dropped and why the first one was, or "".
  std::string about_strangers() const;

 private:
  // A connection whose other end has not proved the key yet.
  struct Guest {
    Socket socket;
    Deadline until;
    std::string received;
    // Set once the guest's hello has been received; the guest must now send its proof.
    std::optional<Hello> hello;
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
  // The largest number of guests at a time.
  const size_t most_guests_;
  std::vector<Guest> guests_;
  std::vector<Arrival> arrivals_;
  // Why the last stranger was dropped.
  const char* reason_ = "";
  size_t strangers_ = 0;
  // The address of the first stranger, and why it was dropped.
  std::string first_stranger_;
};

}  // namespace ds
