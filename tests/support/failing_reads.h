#pragma once
#include <cstdint>
#include <string>

namespace ds::test {

// While it lives, reads of this process (pread) from files whose path has `part` fail with EIO, as of a
// medium that has gone bad; the first `after` of them succeed. One at a time.
class FailingReads {
 public:
  explicit FailingReads(const std::string& part, int64_t after = 0);
  ~FailingReads();
  FailingReads(const FailingReads&) = delete;
  FailingReads& operator=(const FailingReads&) = delete;

  static int64_t seen();  // reads of such files so far
};

}  // namespace ds::test
