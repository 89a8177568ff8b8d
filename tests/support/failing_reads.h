#pragma once
#include <cstdint>
#include <string>

namespace ds::test {

// While it lives, reads of this process (pread) from files whose path has `part` fail with EIO, as
// of a medium that has gone bad; the first `after` of them succeed. One at a time.
class FailingReads {
 public:
  explicit FailingReads(const std::string& part, int64_t after = 0);
  ~FailingReads();
  FailingReads(const FailingReads&) = delete;
  FailingReads& operator=(const FailingReads&) = delete;

  static int64_t seen();  // reads of such files so far
};

// While it lives, reads of such files give at most half of the pages that are asked for, as they
// may at any time.
class ShortReads {
 public:
  explicit ShortReads(const std::string& part);
  ~ShortReads();
  ShortReads(const ShortReads&) = delete;
  ShortReads& operator=(const ShortReads&) = delete;
};

}  // namespace ds::test
