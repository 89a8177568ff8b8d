#include "comm/copy.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace ds {
// On x86 there are three ways of copying, chosen by size. Small copies use memcpy. From kString
// bytes on, the processor's string copy is the fastest if copies_strings() is true. If the whole
// transfer has kFar bytes or more, non-temporal stores are the fastest, because the caches would
// keep little of the result, and such a store need not read the line first.
#if defined(__x86_64__)
namespace {

constexpr size_t kString = size_t{512} << 10;
constexpr size_t kFar = size_t{4} << 20;

// Returns whether the processor has fast string copies (FSRM, bit 4 of EDX), which write whole
// lines without reading them first.
bool copies_strings() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d >> 4 & 1) != 0;
}

// [M] On Zen 5 with two processes at once, 1 MiB takes 17 us and 2 MiB 38 us; with memcpy they take
// 21 us and 45 us.
void copy_string(void* to, const void* from, size_t bytes) {
  asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
}

// [M] At 64 MiB, each of two processes copies 13 GB/s; with memcpy, which first reads the lines
// that it overwrites, 8 GB/s. Stores are aligned to lines of 64 bytes; the source may have any
// alignment.
void copy_far(std::byte* to, const std::byte* from, size_t bytes) {
  size_t head = std::min(bytes, -reinterpret_cast<uintptr_t>(to) % 64), lines = (bytes - head) / 64;
  std::memcpy(to, from, head);
  auto* line = reinterpret_cast<__m128i*>(to + head);
  const auto* source = reinterpret_cast<const __m128i*>(from + head);
  for (size_t i = 0; i < 4 * lines; i += 4) {
    __m128i a = _mm_loadu_si128(source + i), b = _mm_loadu_si128(source + i + 1);
    __m128i c = _mm_loadu_si128(source + i + 2), d = _mm_loadu_si128(source + i + 3);
    _mm_stream_si128(line + i, a);
    _mm_stream_si128(line + i + 1, b);
    _mm_stream_si128(line + i + 2, c);
    _mm_stream_si128(line + i + 3, d);
  }
  _mm_sfence();
  size_t done = head + 64 * lines;
  std::memcpy(to + done, from + done, bytes - done);
}

}  // namespace

void copy(void* to, const void* from, size_t bytes, size_t whole) {
  if (bytes == 0 || to == from) return;
  static const bool strings = copies_strings();
  bool far = std::max(bytes, whole) >= kFar;
  if (strings && !far && bytes >= kString) {
    copy_string(to, from, bytes);
  } else if (!far) {
    std::memcpy(to, from, bytes);
  } else {
    copy_far(static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes);
  }
}

#else

void copy(void* to, const void* from, size_t bytes, size_t) {
  if (bytes != 0 && to != from) std::memcpy(to, from, bytes);
}

#endif
}  // namespace ds
