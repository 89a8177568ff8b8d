#pragma once
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>

// Descriptors 0, 1 and 2 belong to the host process, even while it has them closed: if a file of
// libds had one of these numbers, the next print of the host would write into that file. open()
// returns the lowest free number, so every descriptor that libds opens passes through here
// (tools/check_descriptors.py). The code is header only, because the transport plugins use it
// without linking the library.
namespace ds {

// Moves an open file to a descriptor of 3 or more that closes on exec, and returns the new
// descriptor. Takes ownership of `fd`; a negative `fd` is returned unchanged. Returns -1, with
// errno set, if the system has no descriptor left.
inline int above_standard(int fd) noexcept {
  if (fd < 0 || fd > STDERR_FILENO) return fd;
  int moved = ::fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  int error = errno;
  ::close(fd);
  errno = error;
  return moved;
}

// A guard that keeps descriptors 0 to 2 occupied: those that were closed are /dev/null as long as
// any object of this class lives. Use it around calls into a library that opens descriptors and
// keeps them.
class StandardFilled {
 public:
  StandardFilled() {
    std::lock_guard lock(mutex_);
    if (users_++ > 0) return;
    for (int& fd : filled_) {
      // open() returns the lowest free number, so opening until a number exceeds 2 fills every gap.
      fd = ::open("/dev/null", O_RDWR | O_CLOEXEC);
      if (fd <= STDERR_FILENO) continue;
      ::close(fd);
      fd = -1;
      break;
    }
  }
  ~StandardFilled() {
    std::lock_guard lock(mutex_);
    if (--users_ > 0) return;
    for (int& fd : filled_) {
      if (fd >= 0) ::close(fd);
      fd = -1;
    }
  }
  StandardFilled(const StandardFilled&) = delete;
  StandardFilled& operator=(const StandardFilled&) = delete;

 private:
  static inline std::mutex mutex_;
  static inline int users_ = 0;
  static inline int filled_[STDERR_FILENO + 1] = {-1, -1, -1};
};

}  // namespace ds
