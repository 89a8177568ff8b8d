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

  // Returns the number of reads from these files since the object was created, including those that
  // succeeded.
  static int64_t seen();
};

// While this object lives, a read of more than one page from a file whose path contains `part`
// returns only about half of the requested bytes, as the system may do at any time.
class ShortReads {
 public:
  explicit ShortReads(const std::string& part);
  ~ShortReads();
  ShortReads(const ShortReads&) = delete;
  ShortReads& operator=(const ShortReads&) = delete;
};

}  // namespace ds::test
