#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/build_name.h"
#include "comm/communicator.h"
#include "comm/transport/transport.h"
#include "core/base/descriptor.h"
#include "core/base/error.h"
#include "core/base/interrupted.h"
#include "core/base/memory_file.h"
#include "core/base/signals.h"
#include "core/base/trace.h"

// This transport connects ranks that are processes of one host. Rank 0 creates an anonymous memory
// file (memfd) and passes it to the others over a unix socket in the abstract namespace. Neither
// has a name in a file system, so nothing remains however a rank ends. Each rank holds a lock on
// one byte of the memory file, through a separate file description; the kernel releases the lock
// when the process dies, which is how the others learn of the death.
namespace ds {
namespace {

// Returns the time `ms` milliseconds from now, on the clock of now_ns(), or a time far in the
// future if that would overflow.
int64_t deadline_after(int64_t ms) {
  constexpr int64_t kMost = INT64_MAX / 2'000'000;
  return now_ns() + std::min(ms, kMost) * 1'000'000;
}

// A file descriptor that the destructor closes.
class Fd {
 public:
  explicit Fd(int fd = -1) : fd_(fd) {}
  ~Fd() {
    if (fd_ >= 0) close(fd_);
  }
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

[[noreturn]] void system_error(const std::string& name, const char* call) {
  raise(DS_ERROR_COMM, "shm://{}: {}: {}", name, call, std::strerror(errno));
}

// The first message of a joining rank. Other versions must be able to read it, so its layout never
// changes.
struct Hello {
  uint32_t magic = 0x64732d32;
  int32_t size = 0;
  int32_t rank = 0;
  BuildName build = BuildName::own();
};

// The socket's address in the abstract namespace. It contains the user id, so that users do not
// collide.
struct Address {
  sockaddr_un address{};
  socklen_t length = 0;
  explicit Address(const std::string& name) {
    std::string path = fmt::format("libds.{}.{}", getuid(), name);
    address.sun_family = AF_UNIX;
    // A path that begins with a zero byte is in the abstract namespace.
    std::memcpy(address.sun_path + 1, path.data(), path.size());
    length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + path.size());
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
};

// Answers a hello with the memory file or, if `memory` is -1, with the reason of the refusal.
void answer(int socket, const std::string& refusal, int memory) {
  char text[256] = {};
  std::memcpy(text, refusal.data(), std::min(refusal.size(), sizeof text - 1));
  iovec data{text, sizeof text};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  if (memory >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &memory, sizeof(int));
  }
  // A failed send is ignored, because a peer that has gone is detected later.
  (void)!sendmsg(socket, &message, MSG_NOSIGNAL);
}

// Returns the memory file that rank 0 sends, or throws with the reason of its refusal.
Fd receive_memory(const std::string& name, int socket) {
  char text[256] = {};
  iovec data{text, sizeof text};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_WAITALL);
  if (got < static_cast<ssize_t>(sizeof text))
    raise(DS_ERROR_COMM, "shm://{}: rank 0 left while the ranks joined", name);
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (text[0] != '\0' || !header) raise(DS_ERROR_COMM, "shm://{}: {}", name, text);
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(header), sizeof(int));
  return Fd(above_standard(fd));
}

int milliseconds_left(int64_t deadline) {
  int64_t left = (deadline - now_ns()) / 1'000'000;
  return static_cast<int>(std::clamp<int64_t>(left, 0, INT_MAX));
}

// Returns whether data can be read before the deadline. An interrupting signal does not end the
// wait.
bool readable(int fd, int64_t deadline) {
  pollfd ready{fd, POLLIN, 0};
  return uninterrupted([&] { return poll(&ready, 1, milliseconds_left(deadline)); }) > 0;
}

// Returns whether the other end belongs to this user, according to the kernel: the abstract
// namespace has no permissions.
bool same_user(int socket) {
  ucred peer{};
  socklen_t length = sizeof peer;
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == getuid();
}

// Rank 0's side of the handshake in which ranks join.
class Host {
 public:
  Host(const std::string& name, const CommOptions& options) : name_(name), options_(options) {}

  // Collects one hello from every other rank, then sends the memory file to all of them.
  Fd run() {
    // RLIMIT_FSIZE applies to memory files, too, and exceeding it would end the process by a
    // signal.
    SignalsBlocked blocked(SignalsBlocked::Which::of_writes);
    Fd memory(memory_file("libds"));
    if (memory.get() < 0) system_error(name_, "the memory file cannot be created");
    const auto bytes = static_cast<off_t>(SharedSegment::bytes(options_.size));
    if (uninterrupted([&] { return ftruncate(memory.get(), bytes); }) != 0)
      system_error(name_, "the memory file cannot grow");
    Fd listener(above_standard(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)));
    Address address(name_);
    if (bind(listener.get(), address.get(), address.length) != 0) {
      if (errno == EADDRINUSE)
        raise(DS_ERROR_COMM, "shm://{}: another group of this name is forming on this host", name_);
      system_error(name_, "the socket for joining cannot be opened");
    }
    if (listen(listener.get(), SOMAXCONN) != 0)
      system_error(name_, "the socket for joining cannot be opened");
    int64_t deadline = deadline_after(options_.join_ms);
    std::vector<Fd> peers(static_cast<size_t>(options_.size));
    for (int missing = options_.size - 1; missing > 0;) {
      // The clock is checked as well, so that strangers who keep connecting do not prolong the
      // wait.
      if (!readable(listener.get(), deadline) || now_ns() > deadline) refuse_all(peers, missing);
      Fd peer(above_standard(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC)));
      missing -= admit(std::move(peer), peers) ? 1 : 0;
    }
    for (const Fd& peer : peers) {
      if (peer.get() >= 0) answer(peer.get(), "", memory.get());
    }
    return memory;
  }

 private:
  // Reads the peer's hello and returns whether the peer is a rank that was missing. Drops
  // strangers, and tells a rank that does not fit why it is refused.
  bool admit(Fd peer, std::vector<Fd>& peers) {
    if (!same_user(peer.get())) return false;
    Hello hello;
    timeval limit{2, 0};
    setsockopt(peer.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    if (recv(peer.get(), &hello, sizeof hello, MSG_WAITALL) != sizeof hello) return false;
    std::string refusal;
    const Hello own;
    if (hello.magic != own.magic) return false;
    if (std::string reason = builds_differ(0, own.build, hello.rank, hello.build);
        !reason.empty()) {
      refusal = reason;
    } else if (hello.size != options_.size) {
      refusal = fmt::format("rank 0 was started with size {}, but rank {} with size {}",
                            options_.size, hello.rank, hello.size);
    } else if (hello.rank < 1 || hello.rank >= options_.size ||
               peers[static_cast<size_t>(hello.rank)].get() >= 0) {
      refusal =
          fmt::format("rank {} has joined already: is another job using this name?", hello.rank);
    }
    if (!refusal.empty()) {
      answer(peer.get(), refusal, -1);
      last_refusal_ = " (" + refusal + ")";
      return false;
    }
    peers[static_cast<size_t>(hello.rank)] = std::move(peer);
    return true;
  }

  // Returns the missing ranks as text, for example "ranks 3, 7", with at most eight of them named.
  static std::string names_of(const std::vector<Fd>& peers, int missing) {
    constexpr int kMostNamed = 8;
    std::string names;
    int count = 0;
    for (size_t r = 1; r < peers.size() && count < kMostNamed; ++r) {
      if (peers[r].get() < 0) names += fmt::format("{}{}", count++ == 0 ? "" : ", ", r);
    }
    return fmt::format(
        "{} {}{}", missing == 1 ? "rank" : "ranks", names,
        missing > kMostNamed ? fmt::format(" and {} more", missing - kMostNamed) : "");
  }
  // Tells all ranks that have joined which ranks are missing, and throws.
  [[noreturn]] void refuse_all(const std::vector<Fd>& peers, int missing) {
    std::string reason =
        fmt::format("{} of {} ranks have not joined within {} ms: {}{}", missing, options_.size,
                    options_.join_ms, names_of(peers, missing), last_refusal_);
    for (const Fd& peer : peers) {
      if (peer.get() >= 0) answer(peer.get(), reason, -1);
    }
    raise(DS_ERROR_COMM, "shm://{}: {}", name_, reason);
  }

  const std::string& name_;
  const CommOptions& options_;
  std::string last_refusal_;
};

// The side of the other ranks: tries to connect until rank 0 listens, sends a hello and returns the
// memory file.
Fd join(const std::string& name, const CommOptions& options) {
  Address address(name);
  int64_t deadline = deadline_after(options.join_ms);
  Fd socket_fd;
  for (int tries = 1;; ++tries) {
    socket_fd = Fd(above_standard(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)));
    if (connect(socket_fd.get(), address.get(), address.length) == 0) break;
    if (now_ns() > deadline)
      raise(DS_ERROR_COMM, "shm://{}: rank 0 has not joined within {} ms", name, options.join_ms);
    // The sleeps become longer with the number of tries, because hundreds of ranks may be waiting
    // for rank 0.
    std::this_thread::sleep_for(std::chrono::milliseconds(std::min(tries / 10 + 2, 20)));
  }
  if (!same_user(socket_fd.get()))
    raise(DS_ERROR_COMM, "shm://{}: another user holds this name", name);
  Hello hello;
  hello.size = options.size;
  hello.rank = options.rank;
  if (send(socket_fd.get(), &hello, sizeof hello, MSG_NOSIGNAL) != sizeof hello)
    system_error(name, "rank 0 cannot be told that this rank joins");
  if (!readable(socket_fd.get(), deadline + 1'000'000'000)) {
    raise(DS_ERROR_COMM, "shm://{}: not all of {} ranks have joined within {} ms", name,
          options.size, options.join_ms);
  }
  return receive_memory(name, socket_fd.get());
}

// Returns the description of a lock on the byte of `rank`, for fcntl.
struct flock lock_of(int rank, short type) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = rank;
  lock.l_len = 1;
  return lock;
}

// A segment in a memory file, with the locks that show which ranks are alive.
class ShmSharing final : public Sharing {
 public:
  // The lock belongs to a file description that only this rank has and only the mapping keeps open.
  // A forked child inherits neither, so it cannot hide the death of its parent. `memory` is the
  // file description that all ranks share; it is used to probe the locks.
  ShmSharing(const std::string& name, Fd memory, const CommOptions& options)
      : bytes_(SharedSegment::bytes(options.size)), memory_(std::move(memory)) {
    std::string path = fmt::format("/proc/self/fd/{}", memory_.get());
    Fd own(above_standard(open(path.c_str(), O_RDWR | O_CLOEXEC)));
    if (own.get() < 0) {
      system_error(name,
                   "the memory file cannot be opened again through /proc (if /proc is not mounted, "
                   "ranks can meet over TCP: \"communicator\": \"env:tcp\")");
    }
    struct flock lock = lock_of(options.rank, F_WRLCK);
    if (fcntl(own.get(), F_OFD_SETLK, &lock) != 0)
      system_error(name, "the memory file cannot be locked");
    void* data = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, own.get(), 0);
    if (data == MAP_FAILED) system_error(name, "the memory file cannot be mapped");
    segment_ = static_cast<SharedSegment*>(data);
    madvise(data, bytes_, MADV_DONTFORK);
  }
  ~ShmSharing() override { munmap(segment_, bytes_); }

  SharedSegment& segment() override { return *segment_; }
  // The loop is needed because one call may read less than requested.
  bool read(int rank, uint64_t from, void* to, size_t bytes) override {
    pid_t process = segment_->ranks[rank].process.load();
    while (bytes != 0) {
      iovec local{to, bytes}, remote{reinterpret_cast<void*>(from), bytes};
      ssize_t got = process_vm_readv(process, &local, 1, &remote, 1, 0);
      if (got <= 0) return false;
      from += static_cast<uint64_t>(got);
      to = static_cast<std::byte*>(to) + got;
      bytes -= static_cast<size_t>(got);
    }
    return true;
  }
  std::unique_ptr<Sharing> make(const std::string& name,
                                const CommOptions& options) const override {
    return share_processes(name, options);
  }
  // A rank is alive as long as its byte is locked; if the lock cannot be probed, the rank counts as
  // alive.
  bool alive(int rank) const override {
    struct flock probe = lock_of(rank, F_WRLCK);
    return fcntl(memory_.get(), F_OFD_GETLK, &probe) != 0 || probe.l_type != F_UNLCK;
  }

 private:
  size_t bytes_;
  Fd memory_;
  SharedSegment* segment_ = nullptr;
};

}  // namespace

std::unique_ptr<Sharing> share_processes(const std::string& name, const CommOptions& options) {
  Fd memory = options.rank == 0 ? Host(name, options).run() : join(name, options);
  return std::make_unique<ShmSharing>(name, std::move(memory), options);
}

}  // namespace ds
