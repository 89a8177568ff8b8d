#pragma once
#include <gloo/transport/context.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/gloo/deadline.h"
#include "comm/gloo/key.h"
#include "comm/gloo/proof.h"
#include "comm/gloo/wire.h"

namespace ds {

// Two TCP connections of Gloo to every other rank: one for parts, one for notes, which must get through while
// a part is on its way or its rank has given up. Both ends of each have proved the key before Gloo gets it.
class PeerMesh {
 public:
  // Listens at the address, or at the interface that GLOO_SOCKET_IFNAME names.
  PeerMesh(const std::string& address, int rank, int size);

  // Where this rank listens; of one size everywhere.
  std::string entry() const;
  // Connects to all others, of whom these are the entries: calls the ranks below and awaits those above.
  // Throws std::runtime_error naming a rank.
  void connect(const std::vector<std::string>& entries, const Trust& trust, Deadline deadline);

  // "" or a clause about strangers who came to this rank's port of the data.
  const std::string& strangers() const { return strangers_; }

  // Changes with the bytes of parts that this rank's host has taken from another rank, and that one's from
  // this.
  uint64_t moved(int rank) const;
  // "" or a clause: what was sent to that rank does not arrive.
  std::string stall(int rank) const;
  // Ends the connection of parts with a rank, which Gloo has given up.
  void cut(int rank);

  gloo::transport::Context& parts() { return *contexts_[0]; }
  gloo::transport::Context& notes() { return *contexts_[1]; }

 private:
  using Lanes = std::array<Socket, 2>;  // for parts, for notes

  Socket called(int peer, Purpose purpose, const std::string& entry, const Trust& trust, Deadline deadline);
  void await_calls(const Trust& trust, std::vector<Lanes>& proved, Deadline deadline);

  const int rank_, size_;
  Socket listener_;
  std::string strangers_;
  std::array<std::shared_ptr<gloo::transport::Context>, 2> contexts_;
  std::vector<Lanes> seen_;  // the connections once more, by rank: Gloo does not say what has moved
};

}  // namespace ds
