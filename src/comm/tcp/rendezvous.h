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

// The ranks of a job meet at rank 0, swap what they need to connect to each other, and part: its
// sockets end with this object. Only ranks that have proved the key of the job are heard. Throws
// std::runtime_error of one line, the same on all ranks where rank 0 can still tell.
class Rendezvous {
 public:
  // Collective: all ranks have come, in at most join_ms.
  Rendezvous(const MeetingPoint& point, int rank, int size, int64_t join_ms);
  ~Rendezvous();
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  // The address at which the others reach this rank: that of the way to rank 0.
  const std::string& own_address() const { return own_address_; }
  // "" or a clause about strangers who came to the meeting; rank 0.
  const std::string& strangers() const { return strangers_; }

  // Collective: the entries of all ranks, which have one size.
  std::vector<std::string> gather(const std::string& entry);

  // What is proved among this meeting's ranks alone; all have it after gather.
  const Trust& meeting_trust() const { return meeting_trust_; }

 private:
  void receive_all();
  // Gives an arrival its seat, or tells it why not.
  void seat(Door::Arrival arrival);
  void look_at_seats();
  void give_addresses();
  void come();
  std::string spread(const std::string& entry);
  std::string missing() const;
  template <typename Work>
  void tell_failures(Work work);
  // What find() returns, once it does not throw UnknownHost; at the end of the patience a
  // runtime_error.
  template <typename Find>
  auto known(Find find);

  const MeetingPoint point_;
  const int rank_, size_;
  const int64_t join_ms_;
  const Deadline deadline_;
  JobKey key_;
  Trust trust_, meeting_trust_;
  std::string own_address_, strangers_;
  std::vector<Channel> ranks_;  // rank 0: of each other; else one, rank 0's
};

}  // namespace ds
