#pragma once
#include <ds_plugin.h>
#include <gloo/transport/unbound_buffer.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "comm/gloo/deadline.h"
#include "comm/gloo/meeting_point.h"
#include "comm/gloo/mesh.h"

namespace ds {

// Who ended the group, and why.
struct End {
  int rank = -1;
  std::string reason;
};

// A word to another rank: an End; without text, a sign of life.
struct Note {
  uint32_t size = 0;
  int32_t rank = 0;
  uint64_t sign = 0;
  char text[2032] = {};
};

// What goes to and comes from one other rank. Gloo can only be waited for: one thread waits for the parts,
// one for notes, and both leave what they learn in atomics. Functions are called by one thread at a time.
class Peer {
 public:
  Peer(PeerMesh& mesh, int rank);
  ~Peer();
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  // Begins to move both parts; the last ones have arrived and have gone. Size 0: nothing moves.
  void start(const ds_plugin_part& send, const ds_plugin_part& receive);
  bool arrived() const { return arrived_.load(std::memory_order_acquire); }
  bool gone() const { return gone_.load(std::memory_order_acquire); }
  // Ends what is on its way: its memory is the caller's again.
  void give_up();

  // A sign of life, unless the last one may still be on its way.
  void beat(uint64_t sign);
  // The last one of this peer.
  uint64_t sign() const { return sign_.load(std::memory_order_acquire); }
  void tell(const End& end);
  // Waits until what was told is on its way.
  void linger(Deadline deadline);
  // What this peer told, or nullptr.
  const End* told() const { return told_.load(std::memory_order_acquire) ? &end_ : nullptr; }

  // Whether it has closed its end, or its host or the way to it is gone; while a part is on its way.
  bool lost();

 private:
  using Buffer = std::unique_ptr<gloo::transport::UnboundBuffer>;

  void move_parts();
  void listen();

  PeerMesh& mesh_;
  const int rank_;
  Buffer in_, out_;  // of parts: all memory, the place of a part is an offset
  Note heard_, word_, signs_[2];
  Buffer heard_in_, word_out_, sign_out_[2];
  std::atomic<bool> arrived_{true}, gone_{true}, told_{false}, silent_{false}, broken_{false};
  std::atomic<uint64_t> beats_{0}, sign_{0};
  End end_;  // before told_
  uint64_t beaten_ = 0, beats_then_ = 0;
  Deadline ending_since_{};

  std::mutex mutex_;
  std::condition_variable changed_;
  bool waiting_in_ = false, waiting_out_ = false, over_ = false;  // with mutex_
  std::thread mover_, listener_;
};

}  // namespace ds
