#pragma once
#include <cstddef>

namespace ds::test {

// How much operator new holds at most from its construction on, beyond what it held then. This
// program's operator new counts (heap_test.cpp), and gives 1 GiB at most.
class HeapPeak {
 public:
  HeapPeak();
  size_t bytes() const;

 private:
  size_t before_;
};

}  // namespace ds::test
