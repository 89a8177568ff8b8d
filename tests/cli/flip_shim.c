/* LD_PRELOAD library that simulates a failing disk: flips one bit in the result of the first pread
 * of whole blocks of a file. It does not see calls that libc makes internally. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <sys/types.h>
#include <unistd.h>

static const size_t kBlock = 4096;
static atomic_int calls;

ssize_t pread(int fd, void* data, size_t size, off_t offset) {
  ssize_t (*real)(int, void*, size_t, off_t) =
      (ssize_t(*)(int, void*, size_t, off_t))dlsym(RTLD_NEXT, "pread");
  ssize_t got = real(fd, data, size, offset);
  if (got > 0 && size % kBlock == 0 && atomic_fetch_add(&calls, 1) == 0)
    ((unsigned char*)data)[0] ^= 1;
  return got;
}

ssize_t pread64(int fd, void* data, size_t size, off_t offset) {
  return pread(fd, data, size, offset);
}
