#pragma once
#include <gloo/transport/context.h>
#include <gloo/transport/tcp/device.h>

#include <memory>

#include "comm/gloo/wire.h"

namespace ds {

// Gives Gloo connections that have proved the key, in place of those that Gloo would make itself.
//
// Gloo has no such call. A pair of its own listens at a port, takes the first who comes for its peer, and
// believes every byte: a wrong one ends the process, and a right one writes to its memory. So no stranger may
// ever reach a pair. Two facts make that possible with public parts of Gloo alone:
//
// - A pair listens at the address of its device, which here is the broadcast address of the loopback. Linux
//   binds a TCP socket there and lets nobody connect to it, from this host or another.
// - A pair that connects is content with any connection. It is told to connect to a socket of this function,
//   which nobody but this function reads; then the descriptor of that connection is made to mean the proved
//   one (dup3), which for the pair is the same connection with another end.
class HandOver {
 public:
  HandOver();  // takes a thread: Gloo's
  ~HandOver();
  HandOver(const HandOver&) = delete;
  HandOver& operator=(const HandOver&) = delete;

  const std::shared_ptr<gloo::transport::tcp::Device>& device() const { return device_; }
  // Makes the pair with this rank of a context of device().
  void operator()(gloo::transport::Context& context, int rank, Socket proved);

 private:
  // Gloo's thread answers each change of what it watches after its next turn, 10 ms later when nothing moves.
  // An event that is always due keeps it turning while connections are handed over.
  struct AlwaysDue final : gloo::transport::tcp::Handler {
    void handleEvents(int) override {}
  };

  std::shared_ptr<gloo::transport::tcp::Device> device_;
  AlwaysDue always_due_;
  Socket due_;
};

}  // namespace ds
