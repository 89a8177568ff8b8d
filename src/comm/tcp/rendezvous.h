#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "comm/tcp/deadline.h"
#include "comm/tcp/key.h"
#include "comm/tcp/meeting_point.h"
#include "comm/tcp/proof.h"
#include "comm/tcp/wire.h"

namespace ds {

// A meeting of a job's ranks, in which they connect to rank 0 and exchange the data that they need
// to connect to each other. The destructor closes the connections to rank 0. Only ranks that have
// proved the key of the job take part. Functions throw std::runtime_error with one line. If rank 0
// fails, all ranks that it can still reach get its line.
class Rendezvous {
 public:
  // Waits at most join_ms until all ranks have connected. Collective.
  Rendezvous(const MeetingPoint& point, int rank, int size, int64_t join_ms);
  ~Rendezvous();
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  // Returns the address at which other ranks reach this rank: this rank's end of its connection to
  // rank 0 or, if that is a loopback address, the address of rank 0.
  const std::string& own_address() const { return own_address_; }
  // Returns a clause about strangers who connected, or "". It is always "" on ranks other than 0.
  const std::string& strangers() const { return strangers_; }

  // Returns the entries of all ranks, which must have the same size. Collective.
  std::vector<std::string> gather(const std::string& entry);

  // Returns a key that only the ranks of this rendezvous have. Valid once gather() has returned.
  const Trust& meeting_trust() const { return meeting_trust_; }

 private:
  // Runs on rank 0: listens until all ranks have connected.
  void receive_all();
  // Accepts a rank, or tells it why it is refused.
  void seat(Door::Arrival arrival);
  // Forgets ranks that have left.
  void look_at_seats();
  // Sends every rank its own_address().
  void give_addresses();
  // Runs on the other ranks: calls rank 0 until it answers.
  void come();
  // Runs on rank 0: collects the entries and sends all of them to every rank.
  std::string spread(const std::string& entry);
  // Returns the ranks that have not connected, as text.
  std::string missing() const;
  // Runs `work` and, if it throws, sends the error to all connected ranks.
  template <typename Work>
  void tell_failures(Work work);
  // Calls find() until it does not throw UnknownHost, and returns its result; throws
  // std::runtime_error if that takes too long.
  template <typename Find>
  auto known(Find find);

  const MeetingPoint point_;
  const int rank_, size_;
  const int64_t join_ms_;
  const Deadline deadline_;
  JobKey key_;
  Trust trust_, meeting_trust_;
  std::string own_address_, strangers_;
  // On rank 0, the channels to all other ranks, by rank; elsewhere, the channel to rank 0.
  std::vector<Channel> ranks_;
};

}  // namespace ds
