#pragma once
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "core/base/descriptor.h"

namespace ds {

// A file without a name, in memory, which other processes can be given; -1 with errno. Containers
// and sandboxes that refuse memfd_create mostly leave one of two folders: that of shared memory,
// which is in memory, too, or that of temporary files.
inline int memory_file(const char* name) noexcept {
  int fd = above_standard(::memfd_create(name, MFD_CLOEXEC));
  const int refused = errno;
  for (const char* folder : {"/dev/shm", "/tmp"}) {
    if (fd < 0) fd = above_standard(::open(folder, O_TMPFILE | O_RDWR | O_EXCL | O_CLOEXEC, 0600));
  }
  if (fd < 0) errno = refused;
  return fd;
}

}  // namespace ds
