#include "heap.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <vector>

namespace {

// The largest number of bytes that may be held at once.
constexpr size_t kLargest = size_t{1} << 30;
std::atomic<size_t> live = 0, peak = 0;

}  // namespace

[[gnu::noinline]] void* operator new(size_t bytes) {
  void* data = bytes > kLargest - std::min<size_t>(live, kLargest)
                   ? nullptr
                   : std::malloc(std::max<size_t>(1, bytes));
  if (data == nullptr) throw std::bad_alloc();
  size_t now = live += malloc_usable_size(data);
  if (now > peak) peak = now;
  return data;
}

// A sanitizer's nothrow operator would not count.
[[gnu::noinline]] void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  try {
    return operator new(bytes);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

[[gnu::noinline]] void operator delete(void* data) noexcept {
  live -= malloc_usable_size(data);
  std::free(data);
}

[[gnu::noinline]] void operator delete(void* data, size_t) noexcept { operator delete(data); }

namespace ds::test {

HeapPeak::HeapPeak() : before_(live) { peak = before_; }

size_t HeapPeak::bytes() const { return peak - before_; }

namespace {

TEST(HeapPeak, MeasuresThePeak) {
  HeapPeak heap;
  { std::vector<char> passing(1 << 20); }
  std::vector<char> more(1 << 18);
  EXPECT_GE(heap.bytes(), size_t{1} << 20);
  EXPECT_LT(heap.bytes(), (size_t{1} << 20) + (1 << 18));
  EXPECT_THROW(std::vector<char>(size_t{1} << 31), std::bad_alloc);
  // Standard algorithms allocate their buffers by this operator.
  operator delete(operator new(size_t{1} << 22, std::nothrow));
  EXPECT_GE(heap.bytes(), size_t{1} << 22);
}

}  // namespace
}  // namespace ds::test
