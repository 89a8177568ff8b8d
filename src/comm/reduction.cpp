#include "comm/reduction.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "core/base/error.h"
#include "core/base/half.h"

namespace ds {
namespace {

// Elements that are reduced together. A constant count lets the compiler vectorize the loops.
constexpr size_t kBlock = 256;

// Adds two values. Integers wrap around, which is defined behaviour only in unsigned arithmetic.
template <typename T>
T add(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using Unsigned = std::make_unsigned_t<T>;
    return static_cast<T>(
        static_cast<Unsigned>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b)));
  } else {
    return a + b;
  }
}

// If one value is NaN, both functions return NaN.
template <typename T>
T larger(T a, T b) {
  return a > b || a != a ? a : b;
}
template <typename T>
T smaller(T a, T b) {
  return a < b || a != a ? a : b;
}

template <typename T, T (*Join)(T, T)>
void join(const T* a, const T* b, T* to) {
  for (size_t i = 0; i < kBlock; ++i) to[i] = Join(a[i], b[i]);
}

template <typename T>
using Joiner = void (*)(const T*, const T*, T*);

template <typename T>
Joiner<T> joiner(ReduceOp op) {
  if (op == ReduceOp::max) return join<T, larger<T>>;
  if (op == ReduceOp::min) return join<T, smaller<T>>;
  return join<T, add<T>>;
}

// Loads a block of one rank's elements, widened to the type of the result.
template <typename T>
void load(DType wire, const void* from, size_t first, size_t count, T* to) {
  size_t unit = unit_of(wire);
  const std::byte* data = static_cast<const std::byte*>(from) + first * unit;
  if constexpr (std::is_same_v<T, float>) {
    widen(wire, data, static_cast<int64_t>(count), to);
  } else {
    std::memcpy(to, data, count * unit);
  }
}

// Reduces in blocks: the blocks of all ranks are widened, then joined pairwise, (0+1)+(2+3), and an
// odd last block is carried up. Ranks are loaded one after the other. `rows` holds the partial
// results, one row for each bit that is set in the number of ranks loaded so far, the highest bit
// first. After rank r is loaded, rows are joined once for each trailing 1 bit of r, as a carry runs
// through a binary counter, so log2(ranks) + 1 rows are enough. dst may be one of src, because a
// block is written after it has been read.
template <typename T>
void reduce_blocks(const void* const* src, int ranks, DType wire, ReduceOp op, T* dst,
                   size_t count) {
  constexpr int kBits = 31;
  T rows[kBits + 1][kBlock];
  const Joiner<T> pairwise = joiner<T>(op);
  for (size_t first = 0; first < count; first += kBlock) {
    size_t block = std::min(kBlock, count - first);
    int held = 0;
    auto join_last = [&] {
      --held;
      pairwise(rows[held - 1], rows[held], rows[held - 1]);
    };
    for (int r = 0; r < ranks; ++r) {
      T* row = rows[held++];
      load(wire, src[r], first, block, row);
      if (block < kBlock) std::fill(row + block, row + kBlock, T{0});
      for (int carries = std::countr_one(static_cast<unsigned>(r)); carries > 0; --carries)
        join_last();
    }
    while (held > 1) join_last();
    if constexpr (std::is_floating_point_v<T>) {
      for (size_t i = 0; op == ReduceOp::mean && i < block; ++i)
        rows[0][i] /= static_cast<T>(ranks);
    }
    std::memcpy(dst + first, rows[0], block * sizeof(T));
  }
}

// DS_INDEPENDENT tells the compiler that the iterations of the next loop do not depend on each
// other. DS_SUM_512 compiles a function for vectors of 512 bits; gcc needs an additional option to
// use their full width.
#if defined(__clang__)
#define DS_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#define DS_SUM_512 gnu::target("avx512f,avx512bw,avx512vl,avx512dq")
#else
#define DS_INDEPENDENT _Pragma("GCC ivdep")
#define DS_SUM_512 gnu::target("avx512f,avx512bw,avx512vl,avx512dq,prefer-vector-width=512")
#endif

// Adds up element i of `Span` ranks from rank `First` on, by the same tree as reduce_blocks but in
// registers; Span is 1, 2, 4 or 8. Each element is read before it is written, so dst may be one of
// src.
template <typename Wire, int First, int Span>
[[gnu::always_inline]] inline float tree_at(const Wire* const* src, size_t i) {
  if constexpr (Span == 1) {
    return static_cast<float>(src[First][i]);
  } else {
    return tree_at<Wire, First, Span / 2>(src, i) +
           tree_at<Wire, First + Span / 2, Span / 2>(src, i);
  }
}

template <typename Wire, int Ranks>
[[gnu::always_inline]] inline void sum_body(const void* const* src, float* dst, size_t count) {
  const Wire* from[Ranks];
  for (int r = 0; r < Ranks; ++r) from[r] = static_cast<const Wire*>(src[r]);
  size_t first = 0;
  for (; first + kBlock <= count; first += kBlock) {
    DS_INDEPENDENT
    for (size_t i = 0; i < kBlock; ++i) dst[first + i] = tree_at<Wire, 0, Ranks>(from, first + i);
  }
  for (; first < count; ++first) dst[first] = tree_at<Wire, 0, Ranks>(from, first);
}

template <typename Wire, int Ranks>
void sum_any(const void* const* src, float* dst, size_t count) {
  sum_body<Wire, Ranks>(src, dst, count);
}
using Sum = void (*)(const void* const*, float*, size_t);

#if defined(__x86_64__)
template <typename Wire, int Ranks>
[[gnu::target("avx2")]] void sum_avx2(const void* const* src, float* dst, size_t count) {
  sum_body<Wire, Ranks>(src, dst, count);
}
template <typename Wire, int Ranks>
[[DS_SUM_512]] void sum_avx512(const void* const* src, float* dst, size_t count) {
  sum_body<Wire, Ranks>(src, dst, count);
}
template <typename Wire, int Ranks>
Sum sum_of() {
  if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512dq")) {
    return sum_avx512<Wire, Ranks>;
  }
  return __builtin_cpu_supports("avx2") ? sum_avx2<Wire, Ranks> : sum_any<Wire, Ranks>;
}
#else
// The arm64 baseline already includes vector instructions for floats.
template <typename Wire, int Ranks>
Sum sum_of() {
  return sum_any<Wire, Ranks>;
}
#endif

// Returns the function that adds up that many ranks in registers, or nullptr if no such function
// exists.
template <typename Wire>
Sum quick_sum(int ranks) {
  if (ranks == 2) return sum_of<Wire, 2>();
  if (ranks == 4) return sum_of<Wire, 4>();
  if (ranks == 8) return sum_of<Wire, 8>();
  return nullptr;
}

}  // namespace

void tree_reduce(const void* const* src, int ranks, DType wire, ReduceOp op, void* dst,
                 size_t count) {
  check_reduction(wire, op);
  Sum quick = nullptr;
  if (op == ReduceOp::sum && wire == DS_DTYPE_F32) quick = quick_sum<float>(ranks);
  if (op == ReduceOp::sum && wire == DS_DTYPE_BF16) quick = quick_sum<bf16>(ranks);
  if (op == ReduceOp::sum && wire == DS_DTYPE_F16) quick = quick_sum<f16>(ranks);
  if (quick) return quick(src, static_cast<float*>(dst), count);
  switch (wire) {
    case DS_DTYPE_F64:
      return reduce_blocks(src, ranks, wire, op, static_cast<double*>(dst), count);
    case DS_DTYPE_I32:
      return reduce_blocks(src, ranks, wire, op, static_cast<int32_t*>(dst), count);
    case DS_DTYPE_I64:
      return reduce_blocks(src, ranks, wire, op, static_cast<int64_t*>(dst), count);
    case DS_DTYPE_U8:
      return reduce_blocks(src, ranks, wire, op, static_cast<uint8_t*>(dst), count);
    default:
      return reduce_blocks(src, ranks, wire, op, static_cast<float*>(dst), count);
  }
}

size_t sum_size(DType wire) {
  bool widened = wire == DS_DTYPE_BF16 || wire == DS_DTYPE_F16;
  return widened ? sizeof(float) : unit_of(wire);
}

const char* reduce_op_name(ReduceOp op) {
  constexpr const char* kNames[] = {"sum", "mean", "max", "min"};
  return kNames[static_cast<int>(op)];
}

void check_reduction(DType wire, ReduceOp op) {
  bool real =
      wire == DS_DTYPE_F32 || wire == DS_DTYPE_BF16 || wire == DS_DTYPE_F16 || wire == DS_DTYPE_F64;
  bool whole = wire == DS_DTYPE_I32 || wire == DS_DTYPE_I64 || wire == DS_DTYPE_U8;
  require(real || whole, "a reduction needs type f32, bf16, f16, f64, i32, i64 or u8, got {}",
          static_cast<int>(wire));
  require(real || op != ReduceOp::mean, "mean needs type f32, bf16, f16 or f64, got {}",
          dtype_name(wire));
}

std::string reduction_detail(DType wire, ReduceOp op) {
  return op == ReduceOp::sum ? dtype_name(wire)
                             : fmt::format("{} {}", dtype_name(wire), reduce_op_name(op));
}

}  // namespace ds
