#pragma once
#include <string>
#include <vector>

#include "comm/gloo/wire.h"

namespace ds {

// The ranks of a job meet at rank 0, swap what they need to connect to each other, and part: its sockets end
// with this object. Throws std::runtime_error of one line, the same on all ranks where rank 0 can still tell.
class Rendezvous {
 public:
  // Collective: all ranks have come, in at most join_ms.
  Rendezvous(const MeetingPoint& point, int rank, int size, int64_t join_ms);
  ~Rendezvous();
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  // The address at which the others reach this rank: that of the way to rank 0.
  const std::string& own_address() const { return own_address_; }

  // Collective: to[r] goes to rank r, entry r comes from rank r. All entries of all ranks have one size.
  std::vector<std::string> swap(const std::vector<std::string>& to);

 private:
  struct Guest {
    Socket socket;
    std::string said;  // the beginning of its hello
  };

  void receive_all();
  void admit_one_more(const Socket& door, std::vector<Guest>& guests);
  // Whether all of a guest's hello has come; then it is seated or turned away.
  bool seat(Guest& guest);
  void look_at_seats();
  void give_addresses();
  void come();
  std::string missing() const;
  template <typename Work>
  void tell_failures(Work work);

  const MeetingPoint point_;
  const int rank_, size_;
  const int64_t join_ms_;
  const Deadline deadline_;
  std::string own_address_;
  std::vector<Socket> ranks_;  // rank 0: of each other; else one, rank 0's
};

}  // namespace ds
