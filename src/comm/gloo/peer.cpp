#include "comm/gloo/peer.h"

#include <gloo/transport/pair.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <limits>

#include "comm/gloo/deadline.h"
#include "core/base/signals.h"

namespace ds {
namespace {

enum Slot : uint64_t { kPart = 1, kNote, kNever };

constexpr std::chrono::hours kForever(100000);
constexpr std::chrono::seconds kLate(1);  // what one connection may end after the other

// A thread that waits is told of a lost connection, even if before that its transfer came to an end; asked
// again, Gloo says so. False: the wait was broken off.
bool received(gloo::transport::UnboundBuffer& buffer) {
  try {
    return buffer.waitRecv(kForever);
  } catch (const std::exception&) {
    return buffer.waitRecv(kForever);
  }
}

bool sent(gloo::transport::UnboundBuffer& buffer) {
  try {
    return buffer.waitSend(kForever);
  } catch (const std::exception&) {
    return buffer.waitSend(kForever);
  }
}

}  // namespace

// Gloo forgets a part of which some bytes have come when it tells buffers that a connection is lost. So each
// buffer also waits for a message that nobody sends.
Peer::Peer(PeerMesh& mesh, int rank) : mesh_(mesh), rank_(rank) {
  constexpr size_t kAll = std::numeric_limits<size_t>::max();
  in_ = mesh_.parts().createUnboundBuffer(nullptr, kAll);
  out_ = mesh_.parts().createUnboundBuffer(nullptr, kAll);
  heard_in_ = mesh_.notes().createUnboundBuffer(&heard_, sizeof heard_);
  word_out_ = mesh_.notes().createUnboundBuffer(&word_, sizeof word_);
  for (size_t i : {0, 1}) sign_out_[i] = mesh_.notes().createUnboundBuffer(&signs_[i], offsetof(Note, text));
  SignalsBlocked blocked(SignalsBlocked::Which::all);
  in_->recv(rank_, kNever, 0, 1);
  out_->recv(rank_, kNever, 0, 1);
  heard_in_->recv(rank_, kNever, 0, 1);
  heard_in_->recv(rank_, kNote);
  mover_ = std::thread(&Peer::move_parts, this);
  try {
    listener_ = std::thread(&Peer::listen, this);
  } catch (...) {  // no destructor ends the first
    give_up();
    throw;
  }
}

Peer::~Peer() {
  give_up();
  heard_in_->abortWaitRecv();
  listener_.join();
}

void Peer::start(const ds_plugin_part& send, const ds_plugin_part& receive) {
  if (send.size == 0 && receive.size == 0) return;
  std::lock_guard lock(mutex_);
  if (over_) return;
  waiting_in_ = receive.size != 0;
  waiting_out_ = send.size != 0;
  arrived_ = !waiting_in_;
  gone_ = !waiting_out_;
  try {
    if (waiting_in_) in_->recv(rank_, kPart, reinterpret_cast<size_t>(receive.data), receive.size);
    if (waiting_out_) out_->send(rank_, kPart, reinterpret_cast<size_t>(send.data), send.size);
  } catch (const std::exception&) {
    broken_ = true;
  }
  changed_.notify_one();
}

void Peer::move_parts() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return over_ || waiting_in_ || waiting_out_; });
    if (over_) return;
    bool in = waiting_in_, out = waiting_out_;
    waiting_in_ = waiting_out_ = false;
    lock.unlock();
    try {
      if (in && received(*in_)) arrived_.store(true, std::memory_order_release);
      if (out && sent(*out_)) gone_.store(true, std::memory_order_release);
    } catch (const std::exception&) {
      broken_ = true;
    }
    lock.lock();
  }
}

void Peer::give_up() {
  if (!mover_.joinable()) return;
  {
    std::lock_guard lock(mutex_);
    over_ = true;
  }
  // Half a part would block the connection.
  if (!arrived() || !gone()) {
    mesh_.parts().getPair(rank_)->close();
    mesh_.cut(rank_);
  }
  in_->abortWaitRecv();
  out_->abortWaitSend();
  changed_.notify_one();
  mover_.join();
  in_.reset();
  out_.reset();
}

void Peer::listen() {
  for (;;) {
    try {
      if (!received(*heard_in_)) return;
      if (heard_.size == 0) {
        sign_.store(heard_.sign, std::memory_order_release);
        beats_.fetch_add(1, std::memory_order_release);
      } else if (!told_) {
        end_.rank = heard_.rank;
        end_.reason.assign(heard_.text, std::min<size_t>(heard_.size, sizeof heard_.text));
        told_.store(true, std::memory_order_release);
      }
      heard_in_->recv(rank_, kNote);
    } catch (const std::exception&) {
      silent_ = true;
      return;
    }
  }
}

// After the first, one for each that has come: at most two are on their way, whatever the peer does, and of
// two ranks one may always send.
void Peer::beat(uint64_t sign) {
  uint64_t come = beats_.load(std::memory_order_acquire);
  if (silent_ || (beaten_ != 0 && come == beats_then_)) return;
  beats_then_ = come;
  size_t place = beaten_++ % 2;
  signs_[place].sign = sign;
  try {
    sign_out_[place]->send(rank_, kNote);
  } catch (const std::exception&) {
    silent_ = true;
  }
}

void Peer::tell(const End& end) {
  word_.size = static_cast<uint32_t>(std::min(end.reason.size(), sizeof word_.text));
  word_.rank = end.rank;
  std::memcpy(word_.text, end.reason.data(), word_.size);
  try {
    word_out_->send(rank_, kNote, 0, offsetof(Note, text) + word_.size);
  } catch (const std::exception&) {
    silent_ = true;
  }
}

void Peer::linger(Deadline deadline) {
  if (word_.size == 0 || silent_) return;
  auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
  try {
    word_out_->waitSend(std::max(left, std::chrono::milliseconds(0)));
  } catch (const std::exception&) {
    silent_ = true;
  }
}

// A part and a word that were sent before the end come before it, each on its own connection.
bool Peer::lost() {
  if (silent_ && broken_) return true;
  if (!silent_ && !broken_) return false;
  if (ending_since_ == Deadline{}) ending_since_ = Clock::now();
  return Clock::now() - ending_since_ > kLate;
}

}  // namespace ds
