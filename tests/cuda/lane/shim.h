#pragma once
// Defines CUDA's keywords and intrinsics for g++, so that the .cu files run on this CPU, with a
// fiber for each thread of a block.
//
// The threads of a block run one at a time, each until it must synchronize with others
// (__syncthreads, a shuffle, a ballot) or ends; the launch's seed decides which thread runs next.
// Any order between two such points is one that a device may choose. So if a kernel lacks a
// barrier, some order reads a value before it is written or overwrites one before it is read;
// shared memory starts as NaN, so that such reads show. A barrier that not all threads of the block
// reach at the same line is an error. Kernels that are declared to need no synchronization run as
// plain loops.
//
// Every barrier in a .cu file can be dropped by a test (lane/barriers.h); the kernel's conformance
// cases must then fail.
//
// This does not reproduce speed, caches, or the bits of the device's own exp and tanh.
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "cuda/lane/lane.h"

namespace lane {

inline thread_local Dim3 thread_index, block_index, block_extent, grid_extent;
void* shared_memory();
void meet_block(const char* file, int line);
// Exchanges 8 bytes between all 32 threads of a warp. Returns the value of thread `of`; a negative
// `of` reads nothing.
uint64_t exchange(uint64_t given, int of);
uint32_t vote(bool given);
// The values that a thread contributes to a matrix product, or the address of the row that it
// contributes.
struct Given {
  uint64_t v[3];
};
// Returns the values of all threads of the warp, which stay valid during the next exchange. All
// threads must pass the same `what`.
const Given* meet_warp(const char* what, const Given& given);
// Copies 16 bytes, or writes zeros if `there` is false, either now or when the thread waits, as
// drawn at random.
void copy_ahead(void* to, const void* from, bool there);
void await_copies();

using Body = void (*)(const void* args);
void run_loop(const char* name, Body body, const void* args, Dim3 grid, Dim3 block, uint64_t seed);
void run_blocks(const char* name, Body body, const void* args, Dim3 grid, Dim3 block,
                uint32_t shared_bytes, uint64_t seed, unsigned most_threads);

struct Registrar {
  explicit Registrar(const Entry& entry);
};

template <typename T>
T from_lane(T x, unsigned lane) {
  static_assert(sizeof(T) <= 8);
  uint64_t bits = 0;
  std::memcpy(&bits, &x, sizeof x);
  bits = exchange(bits, static_cast<int>(lane));
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

}  // namespace lane

struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(8) uint2 {
  uint32_t x, y;
};
struct alignas(16) uint4 {
  uint32_t x, y, z, w;
};
inline float rsqrtf(float x) { return 1 / std::sqrt(x); }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline uint2 make_uint2(uint32_t x, uint32_t y) { return {x, y}; }
inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w) { return {x, y, z, w}; }

#define threadIdx ::lane::thread_index
#define blockIdx ::lane::block_index
#define blockDim ::lane::block_extent
#define gridDim ::lane::grid_extent
#define __syncthreads() ::lane::meet_block(__FILE__, __LINE__)
#define __shfl_sync(mask, given, from) ::lane::from_lane(given, (from))
#define __shfl_xor_sync(mask, given, other) ::lane::from_lane(given, (threadIdx.x ^ (other)) % 32)
#define __shfl_up_sync(mask, x, by) \
  ::lane::from_lane(x, threadIdx.x % 32 < (by) ? threadIdx.x % 32 : threadIdx.x % 32 - (by))
#define __ballot_sync(mask, x) ::lane::vote(x)
#define DS_DEVICE static inline
inline float __uint_as_float(uint32_t u) { return std::bit_cast<float>(u); }
inline uint32_t __float_as_uint(float x) { return std::bit_cast<uint32_t>(x); }
// This does not fuse the operations. A fused operation would be a library call for each of many
// products, and the difference is within the tolerances.
inline float __fmaf_rn(float a, float b, float c) { return a * b + c; }
inline float __fmul_rn(float a, float b) { return a * b; }
#define __syncwarp() ((void)::lane::vote(true))
inline void sincospi(double x, double* sine, double* cosine) {
  *sine = std::sin(x * 3.14159265358979323846);
  *cosine = std::cos(x * 3.14159265358979323846);
}
inline int __popc(uint32_t x) { return std::popcount(x); }

#define DS_SHARED(T, name) T* const name = static_cast<T*>(::lane::shared_memory())
#define DS_ENTRY_OF(name, Args, launcher)                                                 \
  static void name(const Args a);                                                         \
  [[maybe_unused]] static const ::lane::Registrar registrar_##name(                       \
      {#name, sizeof(Args),                                                               \
       [](const void* args, ::lane::Dim3 grid, ::lane::Dim3 block, uint32_t shared_bytes, \
          uint64_t seed) {                                                                \
         auto body = [](const void* given) { name(*static_cast<const Args*>(given)); };   \
         launcher;                                                                        \
       }});                                                                               \
  static void name([[maybe_unused]] const Args a)
#define DS_LOOP_KERNEL(name, Args)            \
  DS_ENTRY_OF(name, Args, (void)shared_bytes; \
              ::lane::run_loop(#name, body, args, grid, block, seed))
#define DS_BLOCK_KERNEL(name, Args, threads) \
  DS_ENTRY_OF(name, Args,                    \
              ::lane::run_blocks(#name, body, args, grid, block, shared_bytes, seed, threads))

// Tensor cores. The 16 products of an element are summed before they are added to the accumulator,
// as on a device, so that it matters which products belong together. How a device rounds that sum
// is not known.
#include "kernels/cuda/mma.h"

namespace ds::cuda {

template <bool transposed>
Words4 load_matrices(const uint16_t* row) {
  const ::lane::Given* const all =
      ::lane::meet_warp("load_matrices", {reinterpret_cast<uint64_t>(row)});
  const unsigned g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  const auto at = [&](unsigned matrix, unsigned r, unsigned c) {
    return uint32_t{reinterpret_cast<const uint16_t*>(all[8 * matrix + r].v[0])[c]};
  };
  Words4 m;
  for (unsigned i = 0; i < 4; ++i)
    m.v[i] = transposed ? at(i, 2 * t, g) | at(i, 2 * t + 1, g) << 16
                        : at(i, g, 2 * t) | at(i, g, 2 * t + 1) << 16;
  return m;
}

template <int32_t type>
void add_product(Floats4& c, const Words4& a, uint32_t b0, uint32_t b1) {
  const auto two = [](uint32_t low, uint32_t high) { return low | uint64_t{high} << 32; };
  const ::lane::Given* const all =
      ::lane::meet_warp("add_product", {two(a.v[0], a.v[1]), two(a.v[2], a.v[3]), two(b0, b1)});
  const unsigned g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  const auto number = [](uint32_t half) {
    return type == DS_DTYPE_BF16 ? __uint_as_float(half << 16)
                                 : widen_half(static_cast<uint16_t>(half));
  };
  // Collects the 16 numbers of a row of A or a column of B: two words from each of four threads.
  const auto sixteen = [&](unsigned first, unsigned low, unsigned high, float(&to)[16]) {
    for (unsigned i = 0; i < 8; ++i) {
      const unsigned word = i < 4 ? low : high;
      const auto two = static_cast<uint32_t>(all[first + i % 4].v[word / 2] >> (word % 2 * 32));
      to[2 * i] = number(two & 0xffff), to[2 * i + 1] = number(two >> 16);
    }
  };
  float rows[2][16], columns[2][16];
  for (unsigned i = 0; i < 2; ++i) {
    sixteen(4 * g, i, 2 + i, rows[i]);
    sixteen(4 * (2 * t + i), 4, 5, columns[i]);
  }
  for (unsigned i = 0; i < 4; ++i) {
    float sum = 0;
    for (unsigned k = 0; k < 16; ++k) sum += rows[i / 2][k] * columns[i % 2][k];
    c.v[i] += sum;
  }
}

template <int32_t type>
uint32_t pack(float low, float high) {
  const auto bits = [](float x) -> uint32_t {
    return type == DS_DTYPE_BF16 ? bf16(x).bits : f16(x).bits;
  };
  return bits(low) | bits(high) << 16;
}

inline float from_half(uint16_t bits) { return widen_half(bits); }
inline float power_of_2(float x) { return std::exp2(x); }
inline float reciprocal(float x) { return 1 / x; }
inline float lesser(float a, float b) { return a < b || std::isnan(a) ? a : b; }
inline void copy_ahead(void* to, const void* from, bool there) {
  ::lane::copy_ahead(to, from, there);
}
inline void await_copies() { ::lane::await_copies(); }

}  // namespace ds::cuda
