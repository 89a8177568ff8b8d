#pragma once
// Basic functions of all kernels: operands of any element type, vector accesses, random words, and
// sums over a warp, a block or the ranks. Included by .cu files only. nvcc compiles them for the
// device; for tests, g++ compiles them for the CPU, after tests/cuda/lane/shim.h, which defines the
// keywords of CUDA.
//
// Operands carry their type at run time: there is one entry for an operation instead of one for
// every combination of types. A load or store branches on the type, which is the same for all
// threads. But a thread waits for each load before the branch that widens the value; where several
// loads should be in flight at once, row-inl.h makes the type a compile-time constant. Arithmetic
// is in f32, and a 16-bit value is rounded once, when it is stored.
#include <cstdint>

#include "core/base/dtype.h"
#include "kernels/cuda/entry.h"
#include "kernels/cuda/mma.h"
#include "kernels/cuda/operand.h"

namespace ds::cuda {

constexpr unsigned kWarp = 32;
// The number of warps of the largest block (256 threads), and so of the elements of shared memory
// that a sum over a block needs.
constexpr unsigned kRoom = 8;
// The mask for warp intrinsics in which all threads of the warp take part.
constexpr unsigned kAll = 0xffffffffu;

// Conversions produce the same bits as those of core/base/dtype.h, even for NaN. bf16 is rounded to
// nearest even by adding 0x7fff plus the lowest bit that is kept; a NaN is made quiet so that it
// cannot become infinite.
DS_DEVICE float from_bits(uint32_t u) { return __uint_as_float(u); }
DS_DEVICE uint32_t bits_of(float x) { return __float_as_uint(x); }
DS_DEVICE uint16_t narrow_bf16(float x) {
  const uint32_t u = bits_of(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((u >> 16) | 0x40u);
  return static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}
DS_DEVICE float widen(uint16_t bits, int32_t dtype) {
  return dtype == DS_DTYPE_BF16 ? from_bits(static_cast<uint32_t>(bits) << 16) : widen_half(bits);
}
DS_DEVICE uint16_t narrow(float x, int32_t dtype) {
  return dtype == DS_DTYPE_BF16 ? narrow_bf16(x) : narrow_half(x);
}
// Rounds two values with one instruction. For a NaN this instruction produces other bits than
// dtype.h, so a pair that contains a NaN is rounded by narrow().
template <int32_t dtype>
DS_DEVICE uint32_t two_narrow(float low, float high) {
  if (low == low && high == high) return pack<dtype>(low, high);
  return narrow(low, dtype) | static_cast<uint32_t>(narrow(high, dtype)) << 16;
}
// Returns a b + c, rounded once. Where two sums of products must have equal bits, both use this
// function, so that the compiler cannot fuse the operations of only one of them.
DS_DEVICE float fused(float a, float b, float c) { return __fmaf_rn(a, b, c); }

// get() returns element i of an operand, widened to f32; put() rounds x to the operand's type and
// stores it.
DS_DEVICE float get(const Operand& o, int64_t i) {
  if (o.dtype == DS_DTYPE_F32) return static_cast<const float*>(o.data)[i];
  return widen(static_cast<const uint16_t*>(o.data)[i], o.dtype);
}
DS_DEVICE void put(const Operand& o, int64_t i, float x) {
  if (o.dtype == DS_DTYPE_F32) {
    static_cast<float*>(o.data)[i] = x;
  } else {
    static_cast<uint16_t*>(o.data)[i] = narrow(x, o.dtype);
  }
}

// Consecutive elements that one thread holds: eight (16 or 32 bytes of memory) or four.
template <int size>
struct Neighbours {
  float v[size];
};
using Eight = Neighbours<8>;
// Loads `size` consecutive floats by 16-byte accesses.
template <int size>
DS_DEVICE Neighbours<size> load_floats(const float* from) {
  float4 four[size / 4];
  Neighbours<size> e;
#pragma unroll
  for (int j = 0; j < size / 4; ++j) four[j] = reinterpret_cast<const float4*>(from)[j];
#pragma unroll
  for (int j = 0; j < size / 4; ++j) {
    e.v[4 * j] = four[j].x, e.v[4 * j + 1] = four[j].y;
    e.v[4 * j + 2] = four[j].z, e.v[4 * j + 3] = four[j].w;
  }
  return e;
}
template <int size>
DS_DEVICE void store_floats(float* to, const Neighbours<size>& e) {
#pragma unroll
  for (int j = 0; j < size / 4; ++j)
    reinterpret_cast<float4*>(to)[j] =
        make_float4(e.v[4 * j], e.v[4 * j + 1], e.v[4 * j + 2], e.v[4 * j + 3]);
}
// Loads elements [i, i + n) of `o`, n <= size; the other elements are 0. `wide` is true if the
// address allows vector accesses, which are used if n == size.
template <int size = 8>
DS_DEVICE Neighbours<size> load(const Operand& o, int64_t i, int n, bool wide) {
  Neighbours<size> e;
  if (wide && n == size && o.dtype == DS_DTYPE_F32) {
    e = load_floats<size>(static_cast<const float*>(o.data) + i);
  } else if (wide && n == size) {
    const uint16_t* from = static_cast<const uint16_t*>(o.data) + i;
    uint32_t words[size / 2];
    if constexpr (size == 8) {
      const uint4 u = *reinterpret_cast<const uint4*>(from);
      words[0] = u.x, words[1] = u.y, words[2] = u.z, words[3] = u.w;
    } else {
      const uint2 u = *reinterpret_cast<const uint2*>(from);
      words[0] = u.x, words[1] = u.y;
    }
    if (o.dtype == DS_DTYPE_BF16) {
#pragma unroll
      for (int k = 0; k < size / 2; ++k) {
        e.v[2 * k] = from_bits(words[k] << 16);
        e.v[2 * k + 1] = from_bits(words[k] & 0xffff0000u);
      }
    } else {
#pragma unroll
      for (int k = 0; k < size; ++k)
        e.v[k] = widen_half(static_cast<uint16_t>(words[k / 2] >> (k % 2 * 16)));
    }
  } else {
#pragma unroll
    for (int k = 0; k < size; ++k) e.v[k] = k < n ? get(o, i + k) : 0.0f;
  }
  return e;
}
// The counterpart of load(): rounds and stores the first n elements.
template <int size>
DS_DEVICE void store(const Operand& o, int64_t i, int n, bool wide, const Neighbours<size>& e) {
  if (wide && n == size && o.dtype == DS_DTYPE_F32) {
    store_floats(static_cast<float*>(o.data) + i, e);
  } else if (wide && n == size) {
    uint32_t words[size / 2];
    if (o.dtype == DS_DTYPE_BF16) {
#pragma unroll
      for (int k = 0; k < size / 2; ++k)
        words[k] = two_narrow<DS_DTYPE_BF16>(e.v[2 * k], e.v[2 * k + 1]);
    } else {
#pragma unroll
      for (int k = 0; k < size / 2; ++k)
        words[k] = two_narrow<DS_DTYPE_F16>(e.v[2 * k], e.v[2 * k + 1]);
    }
    uint16_t* to = static_cast<uint16_t*>(o.data) + i;
    if constexpr (size == 8) {
      *reinterpret_cast<uint4*>(to) = make_uint4(words[0], words[1], words[2], words[3]);
    } else {
      *reinterpret_cast<uint2*>(to) = make_uint2(words[0], words[1]);
    }
  } else {
#pragma unroll
    for (int k = 0; k < size; ++k) {
      if (k < n) put(o, i + k, e.v[k]);
    }
  }
}
// Returns the index of this thread in the grid.
DS_DEVICE int64_t thread_number() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
template <int size>
DS_DEVICE int at_most(int64_t count) {
  return count < size ? static_cast<int>(count) : size;
}
DS_DEVICE int at_most_eight(int64_t count) { return at_most<8>(count); }
// Calls f(begin, n) for this thread's elements of `count`: `size` consecutive elements, or fewer at
// the end.
template <int size, typename F>
DS_DEVICE void each_few(int64_t count, const F& f) {
  const int64_t begin = thread_number() * size;
  if (begin < count) f(begin, at_most<size>(count - begin));
}
template <typename F>
DS_DEVICE void each_eight(int64_t count, const F& f) {
  each_few<8>(count, f);
}

// words_of() returns four random words: block `index` of the stream (seed, step, leaf, op), by
// Philox 4x32-10 as in core/base/random.h (Salmon et al., "Parallel random numbers: as easy as 1,
// 2, 3", SC 2011).
struct Words {
  uint32_t v[4];
};
struct Stream {
  uint64_t seed;
  uint32_t step, leaf, op;
};
DS_DEVICE Words words_of(const Stream& s, uint64_t index) {
  uint32_t c0 = static_cast<uint32_t>(index),
           c1 = static_cast<uint32_t>(index >> 32) ^ (s.op << 16), c2 = s.step, c3 = s.leaf,
           k0 = static_cast<uint32_t>(s.seed), k1 = static_cast<uint32_t>(s.seed >> 32);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * c0, p1 = uint64_t{0xCD9E8D57u} * c2;
    c0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
    c1 = static_cast<uint32_t>(p1);
    c2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c3 = static_cast<uint32_t>(p0);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}
// Returns word `which` of the four. It selects by bits because an array that is indexed at run time
// would be placed in local memory.
DS_DEVICE uint32_t word(const Words& w, uint32_t which) {
  const uint32_t low = which & 1 ? w.v[1] : w.v[0], high = which & 1 ? w.v[3] : w.v[2];
  return which & 2 ? high : low;
}
// Maps the upper 24 bits of a word to a number in [0, 1), which f32 represents exactly.
DS_DEVICE float uniform01(uint32_t w) { return static_cast<float>(w >> 8) * 0x1p-24f; }

// Returns the sum of given(rank) over at most kMostSummed ranks, in the order of a reduction:
// neighbouring ranks are added in pairs, then neighbouring pairs, and so on; an odd last sum moves
// up unchanged. The algorithm works like a binary counter: a sum of 2^l ranks waits at level l
// until a second sum of 2^l ranks arrives. It needs one float for each level.
template <typename F>
DS_DEVICE float sum_of_ranks(int64_t ranks, const F& given) {
  float level[9];
#pragma unroll 1
  for (int64_t r = 0; r < ranks; ++r) {
    float sum = given(r);
    bool rises = true;
#pragma unroll
    for (int l = 0; l < 9; ++l) {
      if (rises && (r >> l & 1)) {
        sum = level[l] + sum;
      } else if (rises) {
        level[l] = sum;
        rises = false;
      }
    }
  }
  // The sums that remain are at the levels of the set bits of `ranks`. They are added from the
  // lowest bit (the last ranks) to the highest.
  float all = 0;
  bool any = false;
#pragma unroll
  for (int l = 0; l < 9; ++l) {
    if (!(ranks >> l & 1)) continue;
    all = any ? level[l] + all : level[l];
    any = true;
  }
  return all;
}

// over_block() returns, to every thread, the sum or the maximum of `x` over the threads of the
// block. `room` is shared memory of kRoom elements. Each call must have its own `room`, so that one
// barrier is enough. The order of the sum depends only on the size of the block, which must be a
// multiple of a warp.
struct Plus {
  template <typename T>
  DS_DEVICE T of(T a, T b) {
    return a + b;
  }
};
struct Larger {
  template <typename T>
  DS_DEVICE T of(T a, T b) {
    return a > b ? a : b;
  }
};
template <typename Op, typename T>
DS_DEVICE T over_warp(T x) {
#pragma unroll
  for (unsigned step = kWarp / 2; step > 0; step /= 2)
    x = Op::of(x, __shfl_xor_sync(kAll, x, step));
  return x;
}
template <typename Op, typename T>
DS_DEVICE T over_block(T x, T* room) {
  x = over_warp<Op>(x);
  const unsigned warps = blockDim.x / kWarp;
  if (warps == 1) return x;
  if (threadIdx.x % kWarp == 0) room[threadIdx.x / kWarp] = x;
  __syncthreads();
  T all = room[0];
  for (unsigned w = 1; w < warps; ++w) all = Op::of(all, room[w]);
  return all;
}
template <typename T>
DS_DEVICE T block_sum(T x, T* room) {
  return over_block<Plus>(x, room);
}

}  // namespace ds::cuda
