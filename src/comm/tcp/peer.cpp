#include "comm/tcp/peer.h"

#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace ds {
namespace {

// The largest part that is sent in one frame, in bytes.
constexpr uint32_t kMostFrame = 256 << 10;
// The largest small part, in bytes.
constexpr uint32_t kMostSmall = 512;
constexpr uint32_t kMostReason = 2032;
// The largest number of small parts that are kept until they are requested. A peer cannot be
// further ahead, because it waits for parts from this rank.
constexpr size_t kMostEarly = 8;
// The largest number of heartbeats sent to a peer that sends none. The peer may compute for hours,
// and its kernel must buffer all that it does not read.
constexpr uint32_t kMostUnanswered = 64;

// Returns the kernel's TCP_INFO of a connection, or zeros if it cannot be read.
tcp_info state_of(const Socket& socket) {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (getsockopt(socket.fd(), IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return {};
  return info;
}

// Returns the number of bytes that the other host has not acknowledged.
int unsent_bytes(const Socket& socket) {
  int bytes = 0;
  return ioctl(socket.fd(), SIOCOUTQ, &bytes) == 0 ? bytes : 0;
}

void advance(ds_plugin_part& part, size_t bytes) {
  part.data = static_cast<std::byte*>(part.data) + bytes;
  part.size -= bytes;
}

}  // namespace

// A small part may have been received before it is requested. If it has the wrong size, the ranks
// disagree, and the connection counts as ended.
void Peer::start(const ds_plugin_part& send, const ds_plugin_part& receive) {
  if (given_up_) return;
  send_ = send;
  receive_ = receive;
  to_say_ready_ = receive_.size > kMostSmall;
  if (!early_.empty() && place(early_.front())) {
    early_.erase(early_.begin());
    if (early_.empty()) early_ = {};
  }
  go_on();
}

bool Peer::place(const std::string& part) {
  if (receive_.size == 0 || receive_.size > kMostSmall) return false;
  if (part.size() != receive_.size) {
    ended_ = true;
    return true;
  }
  std::memcpy(receive_.data, part.data(), part.size());
  receive_ = {};
  return true;
}

void Peer::go_on() {
  send();
  receive();
}

void Peer::beat(uint64_t sign) {
  if (unanswered_ >= kMostUnanswered) return;
  next_sign_ = sign;
  send();
}

void Peer::tell(const End& end) {
  if (word_) return;
  word_ = std::make_unique<End>(End{end.rank, end.reason.substr(0, kMostReason)});
  send();
}

// The other end may have received the beginning of the current frame and expects the rest, so a
// copy of the frame is kept and sent.
void Peer::give_up() {
  given_up_ = true;
  if (sending_ && (out_.kind == Kind::part || out_.kind == Kind::small)) {
    kept_ = std::make_unique<std::string>(static_cast<const char*>(out_data_), out_.size);
    out_data_ = kept_->data();
  }
  send_ = receive_ = {};
}

// Frames are sent in this order: the final message, after which nothing follows; a heartbeat;
// readiness; a small part or a piece of a large part.
bool Peer::choose() {
  if (word_ && word_->rank >= 0) {
    out_ = {Kind::word, static_cast<uint32_t>(word_->reason.size()),
            static_cast<uint64_t>(word_->rank)};
    out_data_ = word_->reason.data();
    // A rank of -1 marks the final message as begun, so that it is not chosen again.
    word_->rank = -1;
  } else if (word_) {
    return false;
  } else if (next_sign_) {
    out_ = {Kind::sign, 0, *next_sign_};
    next_sign_.reset();
    ++unanswered_;
  } else if (to_say_ready_) {
    out_ = {Kind::ready, 0, 0};
    to_say_ready_ = false;
  } else if (send_.size != 0 && sent_ == 0 && send_.size <= kMostSmall) {
    out_ = {Kind::small, static_cast<uint32_t>(send_.size), 0};
    out_data_ = send_.data;
  } else if (send_.size != 0 && (sent_ != 0 || ready_ != 0)) {
    if (sent_ == 0) --ready_;
    out_ = {Kind::part, static_cast<uint32_t>(std::min<size_t>(send_.size, kMostFrame)), 0};
    out_data_ = send_.data;
  } else {
    return false;
  }
  out_sent_ = 0;
  return true;
}

void Peer::send() {
  blocked_ = false;
  while (!ended_ && !mute_ && (sending_ || choose())) {
    sending_ = true;
    const size_t head = std::min(out_sent_, sizeof out_), data = out_sent_ - head;
    iovec bytes[2] = {
        {reinterpret_cast<std::byte*>(&out_) + head, sizeof out_ - head},
        {static_cast<std::byte*>(const_cast<void*>(out_data_)) + data, out_.size - data}};
    msghdr message{};
    message.msg_iov = bytes;
    message.msg_iovlen = out_.size != 0 ? 2 : 1;
    const size_t sent =
        moved_by(sendmsg(socket_.fd(), &message, MSG_NOSIGNAL | MSG_DONTWAIT), mute_);
    blocked_ = sent == 0 && !mute_;
    if (sent == 0) return;
    out_sent_ += sent;
    if (out_sent_ < sizeof out_ + out_.size) continue;
    sending_ = false;
    if ((out_.kind != Kind::part && out_.kind != Kind::small) || given_up_) continue;
    advance(send_, out_.size);
    sent_ = send_.size == 0 ? 0 : sent_ + out_.size;
  }
}

// Stops when the awaited part is complete: usually no bytes follow, and if some do, the next call
// receives them.
void Peer::receive() {
  const bool awaited = receive_.size != 0;
  while (!ended_ && take() && !(awaited && receive_.size == 0)) {
  }
}

// A connection with any other frame counts as ended.
bool Peer::is_possible(uint32_t size) const {
  switch (in_.kind) {
    case Kind::part:
      return size != 0 && size <= kMostFrame;
    case Kind::small:
      return size != 0 && size <= kMostSmall && early_.size() < kMostEarly;
    case Kind::word:
      return size <= kMostReason;
    case Kind::ready:
    case Kind::sign:
      return size == 0;
  }
  return false;
}

// Large parts are received directly into their destinations. The bytes of a part that was given up
// are read and dropped, so that the next frame can be found.
bool Peer::take() {
  static thread_local char nowhere[1 << 16];
  size_t got = 0;
  if (in_had_ < sizeof in_) {
    std::byte* to = reinterpret_cast<std::byte*>(&in_) + in_had_;
    got = moved_by(recv(socket_.fd(), to, sizeof in_ - in_had_, MSG_DONTWAIT), ended_);
    in_had_ += got;
    if (in_had_ < sizeof in_) return got != 0;
    if (!is_possible(in_.size)) ended_ = true;
  } else if (in_.kind == Kind::part) {
    const size_t left = in_.size - (in_had_ - sizeof in_);
    if (!given_up_ && left > receive_.size) ended_ = true;
    if (ended_) return false;
    void* to = given_up_ ? nowhere : receive_.data;
    got = moved_by(
        recv(socket_.fd(), to, given_up_ ? std::min(left, sizeof nowhere) : left, MSG_DONTWAIT),
        ended_);
    if (!given_up_) advance(receive_, got);
    part_bytes_ += got;
    in_had_ += got;
  } else {
    got = moved_by(recv(socket_.fd(), nowhere, in_.size - heard_.size(), MSG_DONTWAIT), ended_);
    heard_.append(nowhere, got);
    in_had_ += got;
  }
  if (!ended_ && in_had_ == sizeof in_ + in_.size) {
    took();
    return true;
  }
  return got != 0;
}

void Peer::took() {
  in_had_ = 0;
  if (in_.kind == Kind::small && !given_up_) {
    if (!early_.empty() || !place(heard_)) early_.push_back(std::move(heard_));
  } else if (in_.kind == Kind::ready) {
    ++ready_;
    send();
  } else if (in_.kind == Kind::sign) {
    sign_ = in_.value;
    unanswered_ = 0;
  } else if (in_.kind == Kind::word && !told_) {
    told_ = std::make_unique<End>(End{static_cast<int>(in_.value), heard_});
  }
  heard_ = {};
}

// A failed send does not end the connection, because bytes that the other end sent before it left
// may still arrive.
size_t Peer::moved_by(int64_t result, bool& over) {
  if (result > 0) return static_cast<size_t>(result);
  over = over || result == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
  return 0;
}

int Peer::undelivered() const {
  if (ended_ || mute_) return 0;
  return unsent_bytes(socket_) + (sending_ ? 1 : 0);
}

// The host of a rank that makes no progress still acknowledges heartbeats, so acknowledged bytes
// count only while a part is being sent. Packets that arrive out of order while a part is being
// received count, too: if one packet was lost, the later ones still show that bytes move.
uint64_t Peer::moved() {
  const tcp_info info = state_of(socket_);
  if (sent_ != 0 || (sending_ && out_.kind == Kind::part))
    acked_ = info.tcpi_bytes_acked + info.tcpi_delivered;
  return part_bytes_ + acked_ + (receive_.size != 0 ? info.tcpi_rcv_ooopack : 0);
}

// A reachable host acknowledges all packets, whatever its rank is doing. Retransmissions without
// acknowledgements therefore mean that the path is interrupted or drops large packets.
std::string Peer::stall() const {
  constexpr uint32_t kWhileMs = 500;
  const tcp_info info = state_of(socket_);
  if (info.tcpi_retransmits == 0 || info.tcpi_last_ack_recv <= kWhileMs) return "";
  const std::string text = "none of the " + std::to_string(unsent_bytes(socket_)) + " bytes from " +
                           both_ends(socket_) +
                           " has arrived, although they were sent repeatedly: ";
  const std::string large =
      "a device on the path has a smaller MTU than both ends, so that small messages pass and "
      "large ones do not (ping -M do -s 1472 ADDRESS tells; ip link set IF mtu N)";
  if (info.tcpi_last_data_recv <= kWhileMs) return text + large;
  return text + "the network path between these addresses is interrupted" +
         (unsent_bytes(socket_) > static_cast<int>(info.tcpi_snd_mss) ? ", or " + large : "");
}

}  // namespace ds
