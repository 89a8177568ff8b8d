#pragma once
#include <cstddef>

namespace ds::test {

// The peak of the memory that operator new has held since construction, minus the amount held at
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
