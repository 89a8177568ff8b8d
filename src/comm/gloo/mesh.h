#pragma once
#include <gloo/transport/context.h>
#include <gloo/transport/device.h>
#include <signal.h>

#include <chrono>
#include <memory>
#include <string>

namespace ds {

// For its life this thread takes no signals, nor do threads that it starts. A SIGPIPE of its own writes is
// taken back.
class SignalsBlocked {
 public:
  SignalsBlocked();
  ~SignalsBlocked();
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_{};
  bool was_pending_ = false;
};

// Two TCP connections of Gloo to every other rank: one for parts, one for notes, which must get through while
// a part is on its way or its rank has given up.
class Mesh {
 public:
  // Listens at the address of an interface of this host, or at the interface that GLOO_SOCKET_IFNAME names.
  Mesh(const std::string& address, int rank, int size, std::chrono::milliseconds patience);

  // Where this rank listens for that one; of one size everywhere.
  std::string entry(int peer) const;
  // Connects to that rank, which has this entry for this one. Both must call it.
  void connect(int peer, const std::string& entry);

  gloo::transport::Context& parts() { return *parts_; }
  gloo::transport::Context& notes() { return *notes_; }

 private:
  std::shared_ptr<gloo::transport::Device> device_;
  std::shared_ptr<gloo::transport::Context> parts_, notes_;
};

}  // namespace ds
