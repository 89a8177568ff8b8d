/* LD_PRELOAD library of the crash tests: ends the process with SIGKILL at the n-th call of a chosen
 * kind.
 *
 * DS_TEST_KILL=write:17   kinds: write (write, pwrite), sync (fsync, fdatasync), rename, unlink
 * (unlink, unlinkat, rmdir, remove), submit (io_submit). The n-th call is not made, except that a
 * write first stores half of its bytes. Calls that libc makes inside itself (stdio) are not seen.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

struct iocb;
typedef struct io_context* io_context_t;

static const char* kill_kind = "";
static long kill_at = -1;
static atomic_long calls;

__attribute__((constructor)) static void read_kill_point(void) {
  static char text[64];
  const char* point = getenv("DS_TEST_KILL");
  if (point == NULL) return;
  (void)snprintf(text, sizeof text, "%s", point);
  char* colon = strchr(text, ':');
  if (colon == NULL) return;
  *colon = '\0';
  kill_kind = text;
  kill_at = strtol(colon + 1, NULL, 10);
}

static int is_last(const char* kind) {
  return strcmp(kind, kill_kind) == 0 && atomic_fetch_add(&calls, 1) + 1 == kill_at;
}

static void die_at(const char* kind) {
  if (is_last(kind)) (void)raise(SIGKILL);
}

ssize_t write(int fd, const void* data, size_t size) {
  ssize_t (*real)(int, const void*, size_t) =
      (ssize_t(*)(int, const void*, size_t))dlsym(RTLD_NEXT, "write");
  if (is_last("write")) {
    (void)!real(fd, data, size / 2);
    (void)raise(SIGKILL);
  }
  return real(fd, data, size);
}

ssize_t pwrite(int fd, const void* data, size_t size, off_t offset) {
  ssize_t (*real)(int, const void*, size_t, off_t) =
      (ssize_t(*)(int, const void*, size_t, off_t))dlsym(RTLD_NEXT, "pwrite");
  if (is_last("write")) {
    (void)!real(fd, data, size / 2, offset);
    (void)raise(SIGKILL);
  }
  return real(fd, data, size, offset);
}

ssize_t pwrite64(int fd, const void* data, size_t size, off64_t offset) {
  return pwrite(fd, data, size, offset);
}

int fsync(int fd) {
  die_at("sync");
  return ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(fd);
}

int fdatasync(int fd) {
  die_at("sync");
  return ((int (*)(int))dlsym(RTLD_NEXT, "fdatasync"))(fd);
}

int rename(const char* from, const char* to) {
  die_at("rename");
  return ((int (*)(const char*, const char*))dlsym(RTLD_NEXT, "rename"))(from, to);
}

int unlink(const char* path) {
  die_at("unlink");
  return ((int (*)(const char*))dlsym(RTLD_NEXT, "unlink"))(path);
}

int unlinkat(int folder, const char* path, int flags) {
  die_at("unlink");
  return ((int (*)(int, const char*, int))dlsym(RTLD_NEXT, "unlinkat"))(folder, path, flags);
}

int rmdir(const char* path) {
  die_at("unlink");
  return ((int (*)(const char*))dlsym(RTLD_NEXT, "rmdir"))(path);
}

int remove(const char* path) {
  die_at("unlink");
  return ((int (*)(const char*))dlsym(RTLD_NEXT, "remove"))(path);
}

int io_submit(io_context_t context, long count, struct iocb** requests) {
  die_at("submit");
  int (*real)(io_context_t, long, struct iocb**) =
      (int (*)(io_context_t, long, struct iocb**))dlsym(RTLD_NEXT, "io_submit");
  return real(context, count, requests);
}
