#pragma once
#include <ds_plugin.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/tcp/wire.h"

namespace ds {

// The rank that ended the group, and its reason.
struct End {
  int rank = -1;
  std::string reason;
};

// The connection to one other rank. It carries frames: a header, then bytes. A large part is sent
// in frames of at most 256 KiB, and only after the other end has announced that it is ready for the
// part. A small part is sent at once, and the other end keeps it until the part is requested. So a
// heartbeat or the final message waits for at most one frame, whatever the other rank is doing, and
// a part can be given up: the rest of it is not sent, and another frame follows. No function
// blocks, and an idle connection uses no memory but this object. Used by one thread at a time.
class Peer {
 public:
  explicit Peer(Socket socket) : socket_(std::move(socket)) {}

  // Begins to move both parts; the previous parts must have been moved. A part of size 0 is not
  // moved.
  void start(const ds_plugin_part& send, const ds_plugin_part& receive);
  // Sends and receives as much as possible without blocking.
  void go_on();
  // Returns whether both parts have been moved: the received part is in its place, and the kernel
  // has the whole sent part.
  bool done() const { return receive_.size == 0 && send_.size == 0; }
  // Gives the memory of both parts back to the caller. No part is moved from now on.
  void give_up();

  // Sends a heartbeat. It replaces an earlier heartbeat that could not be sent yet. Does nothing
  // after 64 heartbeats that the peer has not answered by one.
  void beat(uint64_t sign);
  // Returns the last heartbeat from this peer.
  uint64_t sign() const { return sign_; }
  // Sends the final message to this peer: the group has ended.
  void tell(const End& end);
  // Returns the final message from this peer, or null.
  const End* told() const { return told_.get(); }

  // Returns whether the kernel's send buffer is full. Once it is not, call go_on(), which has more
  // to send.
  bool blocked() const { return blocked_; }
  // Returns whether the connection has ended and all received bytes have been processed.
  bool ended() const { return ended_; }
  // Returns the number of sent bytes that the peer's host has not acknowledged, plus one if a frame
  // has been sent only in part.
  int undelivered() const;

  // Returns a number that changes whenever this rank's host has received bytes of parts from the
  // peer, or the peer's host from this rank.
  uint64_t moved();
  // Returns a clause that says why sent bytes do not arrive, or "".
  std::string stall() const;

  int descriptor() const { return socket_.fd(); }

 private:
  // The kinds of frames: a piece of a large part, a small part, readiness for a large part, a
  // heartbeat, the final message.
  enum class Kind : uint32_t { part = 1, small, ready, sign, word };
  struct Header {
    Kind kind = Kind::part;
    // Number of bytes that follow.
    uint32_t size = 0;
    // The heartbeat or, in a final message, the rank that ended the group.
    uint64_t value = 0;
  };

  // Sends frames until the kernel's send buffer is full or no frame is left.
  void send();
  // Begins the next frame; returns false if nothing can be sent now.
  bool choose();
  // Copies a received small part to its destination and returns true; returns false if the part is
  // not requested yet. If the request has another size, the connection counts as ended.
  bool place(const std::string& part);
  // Processes received frames until all available bytes are read or the awaited part is complete.
  void receive();
  // Receives some of the available bytes; returns false if nothing was available.
  bool take();
  // Returns whether a frame of the received header's kind may have `size` bytes now.
  bool is_possible(uint32_t size) const;
  // Acts on a frame that has been received completely.
  void took();
  // Returns the number of bytes that a non-blocking call has moved, given its result. If it is 0,
  // the call would have blocked, or this direction of the connection has ended, in which case
  // `over` is set.
  size_t moved_by(int64_t result, bool& over);

  Socket socket_;
  // The bytes that remain to be sent and received.
  ds_plugin_part send_{}, receive_{};
  // Number of bytes sent so far of the part that is being sent.
  size_t sent_ = 0;
  // Headers of the frames that are being sent and received.
  Header out_, in_;
  // The bytes that follow the header of the frame that is being sent.
  const void* out_data_ = nullptr;
  // Number of bytes of these frames, header included, that have been moved.
  size_t out_sent_ = 0, in_had_ = 0;
  bool sending_ = false, blocked_ = false, given_up_ = false;
  // Whether nothing more can be received (ended_) or sent (mute_).
  bool ended_ = false, mute_ = false;
  // Whether the peer must still be told that this rank is ready for its part.
  bool to_say_ready_ = false;
  // Number of this rank's parts for which the peer is ready.
  uint32_t ready_ = 0;
  // Received small parts that are not requested yet.
  std::vector<std::string> early_;
  std::optional<uint64_t> next_sign_;
  uint64_t sign_ = 0, part_bytes_ = 0, acked_ = 0;
  // Heartbeats sent since the last one from the peer.
  uint32_t unanswered_ = 0;
  // The final message to the peer, with rank -1 once it is being sent, and the final message from
  // the peer.
  std::unique_ptr<End> word_, told_;
  // The bytes received so far of a small part or of the final message.
  std::string heard_;
  // Copy of the frame that was being sent when its part was given up.
  std::unique_ptr<std::string> kept_;
};

}  // namespace ds
