#include "support/failing_reads.h"

#include <fmt/core.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>

namespace {

// Reads of files whose path contains this text fail while `active` is set.
std::string failing_part;
std::atomic<bool> active = false;
std::atomic<int64_t> reads = 0, good_reads = 0;
std::string short_part;
std::atomic<bool> shortens = false;

bool has_part(int fd, const std::string& part) {
  char path[PATH_MAX];
  ssize_t size = readlink(fmt::format("/proc/self/fd/{}", fd).c_str(), path, sizeof path);
  return size >= 0 &&
         std::string_view(path, static_cast<size_t>(size)).find(part) != std::string::npos;
}

bool fails(int fd) { return active && has_part(fd, failing_part) && ++reads > good_reads; }

}  // namespace

// Replaces the C library's pread in all code that is linked statically with this file.
extern "C" ssize_t pread(int fd, void* data, size_t size, off_t offset) {
  if (fails(fd)) {
    errno = EIO;
    return -1;
  }
  constexpr size_t kPage = 4096;
  if (shortens && size > kPage && has_part(fd, short_part))
    size = (size / 2 + kPage - 1) / kPage * kPage;
  return syscall(SYS_pread64, fd, data, size, offset);
}

namespace ds::test {

FailingReads::FailingReads(const std::string& part, int64_t after) {
  failing_part = part;
  reads = 0;
  good_reads = after;
  active = true;
}

FailingReads::~FailingReads() { active = false; }

int64_t FailingReads::seen() { return reads; }

ShortReads::ShortReads(const std::string& part) {
  short_part = part;
  shortens = true;
}

ShortReads::~ShortReads() { shortens = false; }

}  // namespace ds::test
