#pragma once
#include <memory>
#include <string>
#include <vector>

#include "comm/tcp/deadline.h"
#include "comm/tcp/key.h"
#include "comm/tcp/proof.h"
#include "comm/tcp/wire.h"

namespace ds {

// The connections of a rank to all other ranks. Both ends of each connection have proved the key to
// each other.
class PeerMesh {
 public:
  // Listens at the address. If it is not a loopback address and GLOO_SOCKET_IFNAME is set, listens
  // at the interface of that name instead.
  PeerMesh(const std::string& address, int rank, int size);

  // Returns where this rank listens, as bytes of the same size on all ranks.
  std::string entry() const;
  // Connects to all other ranks by their entries: calls the lower ranks and waits for the calls of
  // the higher ones. Returns the connections by rank; the entry of this rank is empty. Throws a
  // std::runtime_error that names a rank which cannot be reached or has not called.
  std::vector<Socket> connect(const std::vector<std::string>& entries, const Trust& trust,
                              Deadline deadline);

  // Returns a clause about strangers who connected to this rank's port, or "".
  const std::string& strangers() const { return strangers_; }

 private:
  // Calls a rank until it answers, and returns the connection.
  Socket called(int peer, const std::string& entry, const Trust& trust, Deadline deadline);
  // Accepts the calls of all higher ranks.
  void await_calls(const Trust& trust, std::vector<Socket>& proved, Deadline deadline);

  const int rank_, size_;
  Socket listener_;
  std::string strangers_;
};

}  // namespace ds
