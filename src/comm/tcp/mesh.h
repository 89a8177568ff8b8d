#pragma once
#include <memory>
#include <string>
#include <vector>

#include "comm/tcp/deadline.h"
#include "comm/tcp/key.h"
#include "comm/tcp/proof.h"
#include "comm/tcp/wire.h"

namespace ds {

// How each rank gets a connection to each other one. Both ends of each have proved the key.
class PeerMesh {
 public:
  // Listens at the address, or at the interface that GLOO_SOCKET_IFNAME names.
  PeerMesh(const std::string& address, int rank, int size);

  // Where this rank listens; of one size everywhere.
  std::string entry() const;
  // Connects to all other ranks by these entries: it calls the ranks below and waits for the calls
  // of those above. Returns the connections by rank, with none for this rank. Throws
  // std::runtime_error naming a rank.
  std::vector<Socket> connect(const std::vector<std::string>& entries, const Trust& trust,
                              Deadline deadline);

  // "" or a clause about strangers who came to this rank's port.
  const std::string& strangers() const { return strangers_; }

 private:
  Socket called(int peer, const std::string& entry, const Trust& trust, Deadline deadline);
  void await_calls(const Trust& trust, std::vector<Socket>& proved, Deadline deadline);

  const int rank_, size_;
  Socket listener_;
  std::string strangers_;
};

}  // namespace ds
