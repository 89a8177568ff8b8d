/* LD_PRELOAD library of the replay tests: records what the process does to files below a folder.
 *
 * DS_TEST_RECORD=LOG, DS_TEST_ROOT=FOLDER (absolute). A record is a line
 * "KIND HANDLE OFFSET SIZE\n", followed by SIZE bytes. Its kinds are:
 *
 *   o  handle opened, of a folder or of a file to write; bytes: path
 *   w  bytes written at OFFSET
 *   s  fsync, fdatasync
 *   t  file set to OFFSET bytes
 *   m  folder made; bytes: path
 *   u  unlink, unlinkat, rmdir, remove; bytes: path
 *   r  rename; bytes: from NUL to
 *   p  bytes printed to stdout
 *
 * A call and its record happen under one lock, so records are in the order of their effects. Calls
 * that libc makes inside itself (stdio) are not seen. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

enum { most_files = 4096 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const char* root;
static int log_fd = -1;
/* Number of handles given out so far. */
static int handles;
static int handle_of[most_files];

#define REAL(name) dlsym(RTLD_NEXT, #name)

typedef ssize_t (*write_fn)(int, const void*, size_t);

static void put(const void* data, size_t size) {
  const char* at = data;
  while (size > 0) {
    ssize_t n = ((write_fn)REAL(write))(log_fd, at, size);
    if (n <= 0) abort();
    at += n;
    size -= (size_t)n;
  }
}

static void record(char kind, int handle, long offset, const void* data, size_t size) {
  char head[100];
  int length = snprintf(head, sizeof head, "%c %d %ld %zu\n", kind, handle, offset, size);
  put(head, (size_t)length);
  put(data, size);
}

__attribute__((constructor)) static void begin(void) {
  const char* path = getenv("DS_TEST_RECORD");
  root = getenv("DS_TEST_ROOT");
  if (path == NULL || root == NULL) return;
  log_fd = ((int (*)(const char*, int, ...))REAL(open))(
      path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
}

static int below(const char* path) {
  return log_fd >= 0 && path != NULL && strncmp(path, root, strlen(root)) == 0;
}

static int handle(int fd) { return log_fd >= 0 && fd >= 0 && fd < most_files ? handle_of[fd] : 0; }

static int opened(int fd, const char* path, int flags) {
  int changes = (flags & (O_WRONLY | O_RDWR | O_CREAT | O_DIRECTORY)) != 0 &&
                (flags & O_TMPFILE) != O_TMPFILE;
  if (fd < 0 || fd >= most_files || !changes || !below(path)) return fd;
  handle_of[fd] = ++handles;
  record('o', handle_of[fd], 0, path, strlen(path));
  return fd;
}

static int open_recorded(const char* path, int flags, int mode) {
  pthread_mutex_lock(&lock);
  int fd = opened(((int (*)(const char*, int, ...))REAL(open))(path, flags, mode), path, flags);
  pthread_mutex_unlock(&lock);
  return fd;
}

int open(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  int mode = (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(more, int) : 0;
  va_end(more);
  return open_recorded(path, flags, mode);
}

int open64(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  int mode = (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(more, int) : 0;
  va_end(more);
  return open_recorded(path, flags, mode);
}

int close(int fd) {
  pthread_mutex_lock(&lock);
  if (fd >= 0 && fd < most_files) handle_of[fd] = 0;
  int code = ((int (*)(int))REAL(close))(fd);
  pthread_mutex_unlock(&lock);
  return code;
}

/* A descriptor that F_DUPFD_CLOEXEC makes keeps the handle of its file. */
int fcntl(int fd, int command, ...) {
  va_list more;
  va_start(more, command);
  long argument = va_arg(more, long);
  va_end(more);
  pthread_mutex_lock(&lock);
  int code = ((int (*)(int, int, ...))REAL(fcntl))(fd, command, argument);
  if (command == F_DUPFD_CLOEXEC && code >= 0 && code < most_files) handle_of[code] = handle(fd);
  pthread_mutex_unlock(&lock);
  return code;
}

int fcntl64(int fd, int command, ...) {
  va_list more;
  va_start(more, command);
  long argument = va_arg(more, long);
  va_end(more);
  return fcntl(fd, command, argument);
}

ssize_t write(int fd, const void* data, size_t size) {
  if (log_fd < 0 || (fd != STDOUT_FILENO && handle(fd) == 0))
    return ((write_fn)REAL(write))(fd, data, size);
  pthread_mutex_lock(&lock);
  ssize_t n = ((write_fn)REAL(write))(fd, data, size);
  if (fd == STDOUT_FILENO) {
    record('p', 0, 0, data, size);
  } else if (n > 0) {
    record('w', handle(fd), lseek(fd, 0, SEEK_CUR) - n, data, (size_t)n);
  }
  pthread_mutex_unlock(&lock);
  return n;
}

ssize_t pwrite(int fd, const void* data, size_t size, off_t offset) {
  pthread_mutex_lock(&lock);
  ssize_t n = ((ssize_t(*)(int, const void*, size_t, off_t))REAL(pwrite))(fd, data, size, offset);
  if (handle(fd) > 0 && n > 0) record('w', handle(fd), offset, data, (size_t)n);
  pthread_mutex_unlock(&lock);
  return n;
}

ssize_t pwrite64(int fd, const void* data, size_t size, off64_t offset) {
  return pwrite(fd, data, size, offset);
}

static int sync_recorded(int fd, const char* name) {
  pthread_mutex_lock(&lock);
  int code = ((int (*)(int))dlsym(RTLD_NEXT, name))(fd);
  if (handle(fd) > 0 && code == 0) record('s', handle(fd), 0, NULL, 0);
  pthread_mutex_unlock(&lock);
  return code;
}
int fsync(int fd) { return sync_recorded(fd, "fsync"); }
int fdatasync(int fd) { return sync_recorded(fd, "fdatasync"); }

static int resized(int fd, long size, int code) {
  if (handle(fd) > 0 && code == 0) record('t', handle(fd), size, NULL, 0);
  return code;
}

int ftruncate(int fd, off_t size) {
  pthread_mutex_lock(&lock);
  int code = resized(fd, size, ((int (*)(int, off_t))REAL(ftruncate))(fd, size));
  pthread_mutex_unlock(&lock);
  return code;
}
int ftruncate64(int fd, off64_t size) { return ftruncate(fd, size); }

int fallocate(int fd, int mode, off_t offset, off_t size) {
  pthread_mutex_lock(&lock);
  int code = ((int (*)(int, int, off_t, off_t))REAL(fallocate))(fd, mode, offset, size);
  /* The replay supports only mode 0. */
  if (mode != 0) abort();
  resized(fd, offset + size, code);
  pthread_mutex_unlock(&lock);
  return code;
}
int fallocate64(int fd, int mode, off64_t offset, off64_t size) {
  return fallocate(fd, mode, offset, size);
}

static int named(char kind, const char* path, int code) {
  if (code == 0 && below(path)) record(kind, 0, 0, path, strlen(path));
  return code;
}

int mkdir(const char* path, mode_t mode) {
  pthread_mutex_lock(&lock);
  int code = named('m', path, ((int (*)(const char*, mode_t))REAL(mkdir))(path, mode));
  pthread_mutex_unlock(&lock);
  return code;
}

static int remove_recorded(const char* path, const char* name) {
  pthread_mutex_lock(&lock);
  int code = named('u', path, ((int (*)(const char*))dlsym(RTLD_NEXT, name))(path));
  pthread_mutex_unlock(&lock);
  return code;
}
int unlink(const char* path) { return remove_recorded(path, "unlink"); }
int rmdir(const char* path) { return remove_recorded(path, "rmdir"); }
int remove(const char* path) { return remove_recorded(path, "remove"); }

int unlinkat(int folder, const char* path, int flags) {
  char link[64], whole[2 * PATH_MAX];
  ssize_t size = 0;
  pthread_mutex_lock(&lock);
  if (folder != AT_FDCWD && path[0] != '/') {
    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
    size = readlink(link, whole, PATH_MAX);
    if (size > 0) whole[size++] = '/';
  }
  (void)snprintf(whole + (size > 0 ? size : 0), PATH_MAX, "%s", path);
  int code =
      named('u', whole, ((int (*)(int, const char*, int))REAL(unlinkat))(folder, path, flags));
  pthread_mutex_unlock(&lock);
  return code;
}

int rename(const char* from, const char* to) {
  pthread_mutex_lock(&lock);
  int code = ((int (*)(const char*, const char*))REAL(rename))(from, to);
  if (code == 0 && below(from)) {
    char both[2 * PATH_MAX];
    int size = snprintf(both, sizeof both, "%s%c%s", from, 0, to);
    record('r', 0, 0, both, (size_t)size);
  }
  pthread_mutex_unlock(&lock);
  return code;
}
