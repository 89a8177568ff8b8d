#include "comm/tcp/proof.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "comm/tcp/deadline.h"
#include "core/base/descriptor.h"

namespace ds {
namespace {

// The largest number of connections that are accepted before existing ones are served again.
constexpr int kMostAtOnce = 64;
constexpr std::chrono::milliseconds kGuestPatience{3000}, kCallPatience{5000};

static_assert(sizeof(Hello) ==
              sizeof kMagic + 4 * sizeof(int32_t) + kMostJob + 1 + sizeof(Bytes32));

std::string text_of(const Hello& hello) {
  return {reinterpret_cast<const char*>(&hello), sizeof hello};
}

// The hello and the door's nonce, which both sides have seen. Every code is derived from them.
struct Session {
  const Bytes32& key;
  std::string seen;

  Bytes32 code(const char* purpose) const { return derived(key, purpose, seen); }
  Bytes32 callers_proof() const { return code("libds tcp proof of the caller"); }
  Bytes32 doors_proof() const { return code("libds tcp proof of the door"); }
  Bytes32 key_to_door() const { return code("libds tcp session to the door"); }
  Bytes32 key_to_caller() const { return code("libds tcp session to the caller"); }
};

Session session_of(const Bytes32& key, const Hello& hello, const Bytes32& draw) {
  return {key, text_of(hello) + std::string(view_of(draw))};
}

Bytes32 bytes_of(const std::string& text) {
  Bytes32 bytes;
  std::memcpy(bytes.data(), text.data(), bytes.size());
  return bytes;
}

}  // namespace

std::optional<Channel> call(const std::string& address, int port, const Trust& trust, Hello hello,
                            Deadline deadline, Failure& failure) {
  deadline = std::min(deadline, Clock::now() + kCallPatience);
  const std::string called = place_text(address, port);
  std::string reason;
  Socket socket = connect_to(address, port, deadline, reason);
  if (!socket.open()) {
    failure.add(0, called + ": " + reason);
    return std::nullopt;
  }
  std::memcpy(hello.magic, kMagic, sizeof kMagic);
  hello.draw = drawn();
  int step = 1;
  try {
    send_bytes(socket, text_of(hello), deadline);
    Bytes32 draw = bytes_of(receive_bytes(socket, sizeof draw, deadline, "the door"));
    ++step;
    Session session = session_of(trust.key, hello, draw);
    send_bytes(socket, view_of(session.callers_proof()), deadline);
    Bytes32 proof = bytes_of(receive_bytes(socket, sizeof proof, deadline, "the door"));
    ++step;
    bool proved = same(proof, session.doors_proof());
    if (proved && trust.same_user && !is_of_this_user(socket)) ++step;
    if (proved && step == 3)
      return Channel(std::move(socket), session.key_to_door(), session.key_to_caller());
  } catch (const std::runtime_error&) {
    // The connection has failed. The reason depends on the step that the proof has reached.
  }
  constexpr const char* kReasons[] = {
      "does not answer like a rank of this version of libds",
      "does not accept this rank's proof: DS_JOB_KEY must be the same on all ranks",
      "does not prove the key: DS_JOB_KEY must be the same on all ranks",
      "belongs to another user: ranks of several users need a DS_JOB_KEY"};
  // Without a key, a proof is refused only because it comes from another user.
  size_t code = trust.same_user && step == 2 ? 4 : step;
  failure.add(step, "the program that listens at " + called + " " + kReasons[code - 1]);
  return std::nullopt;
}

// Reads from the guests that have sent something, drops those that took too long, then accepts new
// connections.
std::vector<Door::Arrival> Door::serve(int milliseconds) {
  std::vector<pollfd> ready{{listener_.fd(), POLLIN, 0}};
  for (const Guest& guest : guests_) ready.push_back({guest.socket.fd(), POLLIN, 0});
  poll(ready.data(), ready.size(), milliseconds);
  size_t seat = 0;
  std::erase_if(guests_, [&](Guest& guest) {
    bool spoke = ready[++seat].revents != 0;
    Answer answer = spoke ? listen_to(guest) : Answer::waits;
    if (answer == Answer::waits && Clock::now() > guest.until) answer = turn_away("took too long");
    if (answer == Answer::stranger) drop(guest);
    return answer != Answer::waits;
  });
  if (ready[0].revents != 0) admit();
  return std::exchange(arrivals_, {});
}

// If descriptors run out or there are too many guests, one guest is dropped (make_room()), so that
// strangers cannot keep ranks out.
void Door::admit() {
  for (int i = 0; i < kMostAtOnce; ++i) {
    Socket socket(
        above_standard(accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)));
    bool too_many = !socket.open() && (errno == EMFILE || errno == ENFILE);
    if (too_many || (socket.open() && guests_.size() >= most_guests_)) make_room();
    if (!socket.open()) return;
    guests_.push_back({std::move(socket), Clock::now() + kGuestPatience, "", std::nullopt, {}});
  }
}

// Drops the oldest guest without a complete hello, since ranks send their hello at once. If all
// have sent one, drops the oldest guest.
void Door::make_room() {
  if (guests_.empty()) return;
  auto silent = std::ranges::find_if(guests_, [](const Guest& g) { return !g.hello; });
  if (silent == guests_.end()) silent = guests_.begin();
  turn_away("was crowded out by others");
  drop(*silent);
  guests_.erase(silent);
}

Door::Answer Door::listen_to(Guest& guest) {
  size_t wanted = guest.hello ? sizeof(Bytes32) : sizeof(Hello);
  char part[sizeof(Hello)];
  ssize_t got = recv(guest.socket.fd(), part, wanted - guest.received.size(), MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return Answer::waits;
  if (got <= 0) return turn_away("left before it had");
  guest.received.append(part, static_cast<size_t>(got));
  if (guest.received.size() < wanted) return Answer::waits;
  return guest.hello ? check(guest) : challenge(guest);
}

Door::Answer Door::challenge(Guest& guest) {
  Hello hello;
  std::memcpy(&hello, std::exchange(guest.received, "").data(), sizeof hello);
  if (std::memcmp(hello.magic, kMagic, sizeof kMagic) != 0 || hello.to != own_rank_)
    return turn_away("did not speak like a rank of this version of libds");
  guest.hello = hello;
  guest.draw = drawn();
  ssize_t put =
      send(guest.socket.fd(), guest.draw.data(), guest.draw.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  return put == static_cast<ssize_t>(guest.draw.size()) ? Answer::waits
                                                        : turn_away("left before it had");
}

// Checks the caller's proof. The door sends its own proof only to a caller that has proved the key.
Door::Answer Door::check(Guest& guest) {
  Session session = session_of(trust_.key, *guest.hello, guest.draw);
  if (!same(bytes_of(guest.received), session.callers_proof())) return turn_away("has another key");
  if (trust_.same_user && !is_of_this_user(guest.socket))
    return turn_away("belongs to another user, or had left");
  Bytes32 proof = session.doors_proof();
  ssize_t put = send(guest.socket.fd(), proof.data(), proof.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (put != static_cast<ssize_t>(proof.size())) return turn_away("left before it was answered");
  guest.hello->job[kMostJob] = '\0';
  arrivals_.push_back({*guest.hello, Channel(std::move(guest.socket), session.key_to_caller(),
                                             session.key_to_door())});
  return Answer::proved;
}

Door::Answer Door::turn_away(const char* reason) {
  reason_ = reason;
  return Answer::stranger;
}

void Door::drop(const Guest& guest) {
  if (strangers_++ > 0) return;
  std::string from = "which was reset";
  try {
    from = "from " + other_end(guest.socket);
  } catch (const std::runtime_error&) {
  }
  first_stranger_ = from + ", " + reason_;
}

std::string Door::about_strangers() const {
  if (strangers_ == 0) return "";
  std::string count =
      strangers_ == 1 ? "1 connection" : std::to_string(strangers_) + " connections";
  return count + " did not prove the key of the job (DS_JOB_KEY); the first, " + first_stranger_;
}

}  // namespace ds
