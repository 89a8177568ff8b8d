#pragma once
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "core/base/descriptor.h"
#include "core/base/interrupted.h"

namespace ds {

// Opens a nameless file that can be passed to other processes, in memory if possible. If
// memfd_create is refused, as in some containers and sandboxes, it opens one in /dev/shm, which is
// also in memory, or else in /tmp. Returns -1 on failure, with the errno of memfd_create.
inline int memory_file(const char* name) noexcept {
  int fd = above_standard(::memfd_create(name, MFD_CLOEXEC));
  const int refused = errno;
  for (const char* folder : {"/dev/shm", "/tmp"}) {
    if (fd >= 0) break;
    fd = uninterrupted([&] {
      return above_standard(::open(folder, O_TMPFILE | O_RDWR | O_EXCL | O_CLOEXEC, 0600));
    });
  }
  if (fd < 0) errno = refused;
  return fd;
}

}  // namespace ds
