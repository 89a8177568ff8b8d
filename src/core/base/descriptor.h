#pragma once
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>

// Descriptors 0, 1 and 2 belong to the host program, also while it has them closed: whoever prints
// next writes to whatever got such a number. open() hands out the lowest free number, so every
// descriptor that libds opens passes through here (tools/check_descriptors.py). Header only: the
// transport plugins use it without linking the library.
namespace ds {

// The same file at a descriptor of 3 or more, closed on exec; `fd` is taken over, and -1 is passed
// on. Returns -1, with errno set, when the system has no descriptor left.
inline int above_standard(int fd) noexcept {
  if (fd < 0 || fd > STDERR_FILENO) return fd;
  int moved = ::fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  int error = errno;
  ::close(fd);
  errno = error;
  return moved;
}

// Fills the missing ones of descriptors 0 to 2 with /dev/null while any of these lives: around
// calls into another library that opens descriptors of its own and keeps them.
class StandardFilled {
 public:
  StandardFilled() {
    std::lock_guard lock(mutex_);
    if (users_++ > 0) return;
    for (int& fd : filled_) {
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
