#pragma once
#include <cstddef>

namespace ds::test {

// Measures the peak of the memory that operator new holds after construction, minus the amount at
// construction. This program replaces operator new (heap_test.cpp), which also refuses more than 1
// GiB.
class HeapPeak {
 public:
  HeapPeak();
  size_t bytes() const;

 private:
  size_t before_;
};

}  // namespace ds::test
