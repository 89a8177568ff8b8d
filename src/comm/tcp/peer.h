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

// Who ended the group, and why.
struct End {
  int rank = -1;
  std::string reason;
};

// The connection to one other rank. What crosses it are frames: a header, then bytes. A large part
// goes as many frames, and only when the other end has said that it is ready for it; a small one
// goes at once, and the other end keeps it until it is asked for. So a sign of life or a word waits
// for one frame at most, whatever the other rank is doing, and a part can be given up: the rest of
// it is not sent, and another frame follows. Nothing here waits, and an idle connection keeps no
// memory beside this object. One thread at a time.
class Peer {
 public:
  explicit Peer(Socket socket) : socket_(std::move(socket)) {}

  // Begins to move both parts; the last ones have been moved. Size 0: nothing moves.
  void start(const ds_plugin_part& send, const ds_plugin_part& receive);
  // Moves what can be moved now.
  void go_on();
  // Whether both parts have been moved: what came is in its place, and what goes is with the
  // kernel.
  bool done() const { return receive_.size == 0 && send_.size == 0; }
  // Their memory is the caller's again, and no part moves any more.
  void give_up();

  // A sign of life; it takes the place of one that could not be sent yet.
  void beat(uint64_t sign);
  // The last one of this peer.
  uint64_t sign() const { return sign_; }
  // The last word to this peer: the group has ended.
  void tell(const End& end);
  // Returns the end that this peer has told, or null.
  const End* told() const { return told_.get(); }

  // Whether the kernel takes no more for now: go_on() has something to send when it does.
  bool blocked() const { return blocked_; }
  // Whether the connection has ended, and everything that came over it has been taken.
  bool ended() const { return ended_; }
  // Bytes that the peer's host has not taken; one more for a frame that is on its way.
  int undelivered() const;

  // Changes with the bytes of parts that this rank's host has taken from the other, and that one's
  // from this.
  uint64_t moved();
  // "" or a clause: what was sent does not arrive.
  std::string stall() const;

  int descriptor() const { return socket_.fd(); }

 private:
  enum class Kind : uint32_t { part = 1, small, ready, sign, word };
  struct Header {
    Kind kind = Kind::part;
    uint32_t size = 0;   // of the bytes that follow
    uint64_t value = 0;  // the sign; of a word, the rank
  };

  void send();
  // Begins the next frame; false: there is none.
  bool choose();
  // Puts a small part into its place, if it is asked for.
  bool place(const std::string& part);
  void receive();
  // Takes what is there; false: there is nothing more.
  bool take();
  // Whether the header that has come may have so many bytes after it.
  bool is_possible(uint32_t size) const;
  // Acts on a whole frame.
  void took();
  // The bytes that a call without waiting has moved; 0: it has to wait, or its direction is `over`.
  size_t moved_by(int64_t result, bool& over);

  Socket socket_;
  ds_plugin_part send_{}, receive_{};  // what is left of both parts
  size_t sent_ = 0;                    // of the part that is sent now
  Header out_, in_;                    // of the frames that are on their way
  const void* out_data_ = nullptr;     // what follows the header
  size_t out_sent_ = 0, in_had_ = 0;   // bytes of header and data
  bool sending_ = false, blocked_ = false, given_up_ = false;
  bool ended_ = false, mute_ = false;  // nothing more comes; nothing more can be sent
  bool to_say_ready_ = false;          // for the part that is awaited
  uint32_t ready_ = 0;                 // the peer is, for so many parts of this rank
  std::vector<std::string> early_;     // small parts that are not asked for yet
  std::optional<uint64_t> next_sign_;
  uint64_t sign_ = 0, part_bytes_ = 0, acked_ = 0;
  uint32_t unanswered_ = 0;  // signs since the peer's last one
  std::unique_ptr<End> word_, told_;
  std::string heard_;  // of a small part or a word that comes
  // The frame that was on its way when its part was given up.
  std::unique_ptr<std::string> kept_;
};

}  // namespace ds
