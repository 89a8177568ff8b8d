/* LD_PRELOAD library of the memory tests: counts the memory and files that a process takes from the
 * system, by intercepting the calls. Heap: malloc and related functions, by the size of the chunk
 * (usable bytes and header). Mappings: mmap, anonymous or shared, as far as they are accessible.
 * Files: fallocate and ftruncate, except for memory files. Stacks: the stack pages that threads
 * created by pthread_create have touched. It does not see calls that libc makes internally:
 * mappings made by malloc are counted as the chunks that malloc returns, and thread stacks as
 * described above.
 *
 * The program finds shim_read, shim_reset_peaks and shim_mappings by dlsym. */
#define _GNU_SOURCE
#include "memory/count_shim.h"

#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

extern void* __libc_malloc(size_t);
extern void* __libc_calloc(size_t, size_t);
extern void* __libc_realloc(void*, size_t);
extern void* __libc_memalign(size_t, size_t);
extern void __libc_free(void*);

enum { kMappings = 4096, kFiles = 1024, kThreads = 256, kPage = 4096 };

static struct shim_mapping mappings[kMappings];
static struct {
  long bytes;
  int memory;
} files[kFiles];
static struct {
  char* low;
  size_t bytes;
} stacks[kThreads];

static struct shim_counts now;
static atomic_flag busy = ATOMIC_FLAG_INIT;

static void lock(void) {
  while (atomic_flag_test_and_set_explicit(&busy, memory_order_acquire)) {
  }
}
static void unlock(void) { atomic_flag_clear_explicit(&busy, memory_order_release); }

static void raise_peak(long* peak, long value) {
  if (value > *peak) *peak = value;
}

/* Updates the peaks. Call with the lock held. */
static void peaks(void) {
  raise_peak(&now.heap_peak, now.heap);
  raise_peak(&now.mapped_peak, now.mapped);
  raise_peak(&now.shared_peak, now.shared);
  raise_peak(&now.file_peak, now.file);
  raise_peak(&now.total_peak, now.heap + now.mapped);
}

/* ---- heap ---- */

static long chunk(void* p) {
  return p == NULL ? 0 : (long)(malloc_usable_size(p) + sizeof(size_t));
}

static void heap(long bytes) {
  lock();
  now.heap += bytes;
  if (bytes > 0) raise_peak(&now.largest_chunk, bytes);
  peaks();
  unlock();
}

void* malloc(size_t bytes) {
  void* p = __libc_malloc(bytes);
  heap(chunk(p));
  return p;
}

void* calloc(size_t count, size_t bytes) {
  void* p = __libc_calloc(count, bytes);
  heap(chunk(p));
  return p;
}

void* realloc(void* old, size_t bytes) {
  long before = chunk(old);
  void* p = __libc_realloc(old, bytes);
  if (p != NULL || bytes == 0) heap(chunk(p) - before);
  return p;
}

void free(void* p) {
  heap(-chunk(p));
  __libc_free(p);
}

void* memalign(size_t alignment, size_t bytes) {
  void* p = __libc_memalign(alignment, bytes);
  heap(chunk(p));
  return p;
}

void* aligned_alloc(size_t alignment, size_t bytes) { return memalign(alignment, bytes); }

int posix_memalign(void** out, size_t alignment, size_t bytes) {
  void* p = memalign(alignment, bytes);
  if (p == NULL) return ENOMEM;
  *out = p;
  return 0;
}

/* ---- mappings ---- */

static void mapping_made(void* address, size_t bytes, int flags) {
  lock();
  int shared = (flags & MAP_SHARED) != 0, counted = shared || (flags & MAP_ANONYMOUS) != 0;
  for (int i = 0; counted && i < kMappings; ++i) {
    if (mappings[i].bytes != 0) continue;
    long whole = (long)((bytes + kPage - 1) / kPage * kPage);
    mappings[i].address = address;
    mappings[i].asked = (long)bytes;
    mappings[i].bytes = whole;
    mappings[i].shared = shared;
    if (shared) {
      now.shared += whole;
    } else {
      now.mapped += whole;
    }
    raise_peak(&now.largest_mapping, whole);
    break;
  }
  peaks();
  unlock();
}

/* Forgets a mapping that starts at `address`. Supports only whole mappings, because no library in
 * this process unmaps a part of one. */
static void mapping_ended(void* address) {
  lock();
  for (int i = 0; i < kMappings; ++i) {
    if (mappings[i].bytes == 0 || mappings[i].address != address) continue;
    if (mappings[i].shared) {
      now.shared -= mappings[i].bytes;
    } else {
      now.mapped -= mappings[i].bytes;
    }
    mappings[i].bytes = 0;
    break;
  }
  unlock();
}

void* mmap64(void* address, size_t bytes, int protection, int flags, int fd, off64_t offset) {
  void* (*real)(void*, size_t, int, int, int, off64_t) =
      (void* (*)(void*, size_t, int, int, int, off64_t))dlsym(RTLD_NEXT, "mmap64");
  void* p = real(address, bytes, protection, flags, fd, offset);
  /* Addresses without access take no memory. mprotect gives it to them. */
  if (p != MAP_FAILED && protection != PROT_NONE) mapping_made(p, bytes, flags);
  return p;
}

/* Counts what becomes accessible as a mapping, or as more of the mapping that it continues. */
int mprotect(void* address, size_t bytes, int protection) {
  int (*real)(void*, size_t, int) = (int (*)(void*, size_t, int))dlsym(RTLD_NEXT, "mprotect");
  int failed = real(address, bytes, protection);
  if (failed || (protection & PROT_WRITE) == 0) return failed;
  char* begin = address;
  for (int i = 0; i < kMappings; ++i) {
    char* first = mappings[i].address;
    if (mappings[i].bytes == 0 || begin < first || begin > first + mappings[i].bytes) continue;
    if (begin + bytes <= first + mappings[i].bytes) return 0;
    mapping_ended(first);
    mapping_made(first, (size_t)(begin - first) + bytes, MAP_PRIVATE | MAP_ANONYMOUS);
    return 0;
  }
  mapping_made(address, bytes, MAP_PRIVATE | MAP_ANONYMOUS);
  return 0;
}

void* mmap(void* address, size_t bytes, int protection, int flags, int fd, off_t offset) {
  return mmap64(address, bytes, protection, flags, fd, offset);
}

int munmap(void* address, size_t bytes) {
  int (*real)(void*, size_t) = (int (*)(void*, size_t))dlsym(RTLD_NEXT, "munmap");
  mapping_ended(address);
  return real(address, bytes);
}

void* mremap(void* old, size_t old_bytes, size_t bytes, int flags, ...) {
  void* (*real)(void*, size_t, size_t, int, void*) =
      (void* (*)(void*, size_t, size_t, int, void*))dlsym(RTLD_NEXT, "mremap");
  va_list rest;
  va_start(rest, flags);
  void* wanted = (flags & MREMAP_FIXED) != 0 ? va_arg(rest, void*) : NULL;
  va_end(rest);
  void* p = real(old, old_bytes, bytes, flags, wanted);
  if (p == MAP_FAILED) return p;
  mapping_ended(old);
  mapping_made(p, bytes, MAP_PRIVATE | MAP_ANONYMOUS);
  return p;
}

/* ---- files ---- */

int memfd_create(const char* name, unsigned flags) {
  int (*real)(const char*, unsigned) =
      (int (*)(const char*, unsigned))dlsym(RTLD_NEXT, "memfd_create");
  int fd = real(name, flags);
  if (fd >= 0 && fd < kFiles) files[fd].memory = 1;
  return fd;
}

static void file_sized(int fd, long bytes) {
  if (fd < 0 || fd >= kFiles) return;
  lock();
  if (!files[fd].memory) {
    now.file += bytes - files[fd].bytes;
    ++now.file_calls;
  }
  files[fd].bytes = bytes;
  peaks();
  unlock();
}

int ftruncate64(int fd, off64_t bytes) {
  int (*real)(int, off64_t) = (int (*)(int, off64_t))dlsym(RTLD_NEXT, "ftruncate64");
  int code = real(fd, bytes);
  if (code == 0) file_sized(fd, bytes);
  return code;
}

int ftruncate(int fd, off_t bytes) { return ftruncate64(fd, bytes); }

int fallocate64(int fd, int mode, off64_t offset, off64_t bytes) {
  int (*real)(int, int, off64_t, off64_t) =
      (int (*)(int, int, off64_t, off64_t))dlsym(RTLD_NEXT, "fallocate64");
  int code = real(fd, mode, offset, bytes);
  if (code == 0 && mode == 0) file_sized(fd, offset + bytes);
  return code;
}

int fallocate(int fd, int mode, off_t offset, off_t bytes) {
  return fallocate64(fd, mode, offset, bytes);
}

int close(int fd) {
  int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "close");
  if (fd >= 0 && fd < kFiles) {
    lock();
    if (!files[fd].memory) now.file -= files[fd].bytes;
    files[fd].bytes = 0;
    files[fd].memory = 0;
    unlock();
  }
  return real(fd);
}

/* ---- stacks ---- */

struct start {
  void* (*body)(void*);
  void* argument;
};

static void* run(void* data) {
  struct start start = *(struct start*)data;
  free(data);
  pthread_attr_t attributes;
  void* low = NULL;
  size_t bytes = 0;
  int place = -1;
  if (pthread_getattr_np(pthread_self(), &attributes) == 0) {
    (void)pthread_attr_getstack(&attributes, &low, &bytes);
    (void)pthread_attr_destroy(&attributes);
  }
  lock();
  for (int i = 0; i < kThreads && place < 0; ++i) {
    if (stacks[i].bytes == 0) place = i;
  }
  if (place >= 0) {
    stacks[place].low = low;
    stacks[place].bytes = bytes;
  }
  unlock();
  void* result = start.body(start.argument);
  if (place >= 0) stacks[place].bytes = 0;
  return result;
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*),
                   void* argument) {
  int (*real)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*) =
      (int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*))dlsym(RTLD_NEXT,
                                                                                 "pthread_create");
  struct start* start = malloc(sizeof *start);
  if (start == NULL) return EAGAIN;
  start->body = body;
  start->argument = argument;
  return real(thread, attributes, run, start);
}

static long touched(char* low, size_t bytes) {
  unsigned char pages[64];
  long count = 0;
  for (size_t at = 0; at < bytes; at += sizeof pages * kPage) {
    size_t part = bytes - at < sizeof pages * kPage ? bytes - at : sizeof pages * kPage;
    if (mincore(low + at, part, pages) != 0) continue;
    for (size_t i = 0; i < part / kPage; ++i) count += pages[i] & 1;
  }
  return count * kPage;
}

/* ---- functions for the program ---- */

void shim_read(struct shim_counts* out) {
  lock();
  now.stacks = 0;
  for (int i = 0; i < kThreads; ++i) {
    if (stacks[i].bytes != 0) now.stacks += touched(stacks[i].low, stacks[i].bytes);
  }
  *out = now;
  unlock();
}

void shim_reset_peaks(void) {
  lock();
  now.heap_peak = now.mapped_peak = now.shared_peak = now.file_peak = now.total_peak = 0;
  now.largest_mapping = now.largest_chunk = now.file_calls = 0;
  peaks();
  unlock();
}

int shim_mappings(struct shim_mapping* out, int capacity) {
  int count = 0;
  lock();
  for (int i = 0; i < kMappings && count < capacity; ++i) {
    if (mappings[i].bytes != 0) out[count++] = mappings[i];
  }
  unlock();
  return count;
}
