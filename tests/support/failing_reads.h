#pragma once
#include <cstdint>
#include <string>

namespace ds::test {

// While this object lives, reads (pread) of this process from files whose path contains `part` fail
// with EIO, as if the medium had gone bad. The first `after` reads succeed. Only one object may
// live at a time.
class FailingReads {
 public:
  explicit FailingReads(const std::string& part, int64_t after = 0);
  ~FailingReads();
  FailingReads(const FailingReads&) = delete;
  FailingReads& operator=(const FailingReads&) = delete;

  // Returns the number of reads from such files so far.
  static int64_t seen();
};

// While this object lives, each read from such a file returns at most half of the requested pages,
// as the system may do at any time.
class ShortReads {
 public:
  explicit ShortReads(const std::string& part);
  ~ShortReads();
  ShortReads(const ShortReads&) = delete;
  ShortReads& operator=(const ShortReads&) = delete;
};

}  // namespace ds::test
