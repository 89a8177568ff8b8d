#include "comm/gloo/mesh.h"

#include <gloo/transport/address.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/tcp/device.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <vector>

namespace ds {
namespace {

// Gloo waits five times as long for a connection.
constexpr int kGlooPatience = 5;

std::string bytes_of(gloo::transport::Context& context, int peer) {
  std::vector<char> bytes = context.getPair(peer)->address().bytes();
  return std::string(bytes.begin(), bytes.end());
}

}  // namespace

SignalsBlocked::SignalsBlocked() {
  sigset_t all, pending;
  sigpending(&pending);
  was_pending_ = sigismember(&pending, SIGPIPE) == 1;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before_);
}

SignalsBlocked::~SignalsBlocked() {
  sigset_t pipe;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  timespec now{};
  if (!was_pending_) sigtimedwait(&pipe, nullptr, &now);
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

Mesh::Mesh(const std::string& address, int rank, int size, std::chrono::milliseconds patience) {
  SignalsBlocked blocked;  // Gloo starts a thread
  gloo::transport::tcp::attr where;
  where.ai_family = AF_INET;
  const char* interface = std::getenv("GLOO_SOCKET_IFNAME");
  if (interface != nullptr && *interface != '\0') {
    where.iface = interface;
  } else {
    where.hostname = address;
  }
  device_ = gloo::transport::tcp::CreateDevice(where);
  for (auto* context : {&parts_, &notes_}) {
    *context = device_->createContext(rank, size);
    (*context)->setTimeout(std::max(patience / kGlooPatience, std::chrono::milliseconds(1)));
    for (int r = 0; r < size; ++r) {
      if (r != rank) (*context)->createPair(r);
    }
  }
}

std::string Mesh::entry(int peer) const { return bytes_of(*parts_, peer) + bytes_of(*notes_, peer); }

void Mesh::connect(int peer, const std::string& entry) {
  auto half = static_cast<std::ptrdiff_t>(entry.size() / 2);
  parts_->getPair(peer)->connect({entry.begin(), entry.begin() + half});
  notes_->getPair(peer)->connect({entry.begin() + half, entry.end()});
}

}  // namespace ds
