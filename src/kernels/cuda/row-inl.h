#pragma once
// Helpers for a block of threads that processes a row in groups of eight columns: thread t has
// columns 8 t to 8 t + 7 of every 8 blockDim.x columns. Which thread has a column, and therefore
// the order of every sum, depends only on the width of the row and the size of the block. The row's
// address only determines how wide the loads are. Included by .cu files only.
//
// Loads have two steps: fetch() loads bits, widened() converts them to floats. Between the two,
// other loads can start, which hides the latency of memory.
#include <cstdint>

#include "kernels/cuda/device.h"
#include "kernels/cuda/mma.h"

namespace ds::cuda {

// Returns whether the address of element i is a multiple of 16 bytes.
DS_DEVICE bool begins_vector(const Operand& o, int64_t i) {
  const int64_t bytes = i * (o.dtype == DS_DTYPE_F32 ? 4 : 2);
  return (reinterpret_cast<uint64_t>(o.data) + static_cast<uint64_t>(bytes)) % 16 == 0;
}
// with_type() calls f with a type as a Constant, so that the code of f is compiled for that type.
template <int32_t number>
struct Constant {
  static constexpr int32_t value = number;
};
template <typename F>
DS_DEVICE void with_type(int32_t dtype, const F& f) {
  if (dtype == DS_DTYPE_BF16) {
    f(Constant<DS_DTYPE_BF16>{});
  } else if (dtype == DS_DTYPE_F16) {
    f(Constant<DS_DTYPE_F16>{});
  } else {
    f(Constant<DS_DTYPE_F32>{});
  }
}

// Returns element i as get() does, for a type that is known at compile time.
template <int32_t type>
DS_DEVICE float element(const Operand& o, int64_t i) {
  if constexpr (type == DS_DTYPE_F32) return static_cast<const float*>(o.data)[i];
  return widen(static_cast<const uint16_t*>(o.data)[i], type);
}

// Eight elements in the format of memory. If they were widened right after their load, by a type
// that is only known at run time, the thread would wait for each load before it starts the next.
template <int32_t type>
struct Bits {
  uint32_t v[4];
};
template <>
struct Bits<DS_DTYPE_F32> {
  float v[8];
};
// Loads elements [i, i + n) as load() does, but does not widen them. The other elements are 0.
template <int32_t type>
DS_DEVICE Bits<type> fetch(const Operand& o, int64_t i, int n, bool wide) {
  Bits<type> b;
  if constexpr (type == DS_DTYPE_F32) {
    const float* from = static_cast<const float*>(o.data) + i;
    if (wide && n == 8) {
      const float4 low = reinterpret_cast<const float4*>(from)[0],
                   high = reinterpret_cast<const float4*>(from)[1];
      b.v[0] = low.x, b.v[1] = low.y, b.v[2] = low.z, b.v[3] = low.w;
      b.v[4] = high.x, b.v[5] = high.y, b.v[6] = high.z, b.v[7] = high.w;
    } else {
#pragma unroll
      for (int k = 0; k < 8; ++k) b.v[k] = k < n ? from[k] : 0.0f;
    }
  } else {
    const uint16_t* from = static_cast<const uint16_t*>(o.data) + i;
    if (wide && n == 8) {
      const uint4 u = *reinterpret_cast<const uint4*>(from);
      b.v[0] = u.x, b.v[1] = u.y, b.v[2] = u.z, b.v[3] = u.w;
    } else {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const uint32_t low = 2 * k < n ? from[2 * k] : 0u,
                       high = 2 * k + 1 < n ? from[2 * k + 1] : 0u;
        b.v[k] = low | high << 16;
      }
    }
  }
  return b;
}
// Loads into b[j] the eight elements from i + j * step on.
template <int32_t type, int eights>
DS_DEVICE void fetch_each(const Operand& o, int64_t i, int64_t step, bool wide,
                          Bits<type> (&b)[eights]) {
  if (wide) {
#pragma unroll
    for (int j = 0; j < eights; ++j) b[j] = fetch<type>(o, i + j * step, 8, true);
  } else {
#pragma unroll
    for (int j = 0; j < eights; ++j) b[j] = fetch<type>(o, i + j * step, 8, false);
  }
}
// Converts the elements to f32.
template <int32_t type>
DS_DEVICE Eight widened(const Bits<type>& b) {
  Eight e;
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    if constexpr (type == DS_DTYPE_F32) {
      e.v[k] = b.v[k];
    } else if constexpr (type == DS_DTYPE_BF16) {
      e.v[k] = from_bits(k % 2 == 0 ? b.v[k / 2] << 16 : b.v[k / 2] & 0xffff0000u);
    } else {
      e.v[k] = from_half(static_cast<uint16_t>(b.v[k / 2] >> (k % 2 * 16)));
    }
  }
  return e;
}
// Calls f(k) for the first n of eight elements.
template <typename F>
DS_DEVICE void each_of(int n, const F& f) {
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    if (k < n) f(k);
  }
}
// Stores the first n elements as store() does, except that a NaN gets the device's bits instead of
// those of dtype.h.
template <int32_t type>
DS_DEVICE void put_eight(const Operand& o, int64_t i, int n, bool wide, const Eight& e) {
  if constexpr (type == DS_DTYPE_F32) {
    float* to = static_cast<float*>(o.data) + i;
    if (wide && n == 8) {
      reinterpret_cast<float4*>(to)[0] = make_float4(e.v[0], e.v[1], e.v[2], e.v[3]);
      reinterpret_cast<float4*>(to)[1] = make_float4(e.v[4], e.v[5], e.v[6], e.v[7]);
    } else {
      each_of(n, [&](int k) { to[k] = e.v[k]; });
    }
  } else if (wide && n == 8) {
    *reinterpret_cast<uint4*>(static_cast<uint16_t*>(o.data) + i) =
        make_uint4(pack<type>(e.v[0], e.v[1]), pack<type>(e.v[2], e.v[3]),
                   pack<type>(e.v[4], e.v[5]), pack<type>(e.v[6], e.v[7]));
  } else {
    uint16_t* to = static_cast<uint16_t*>(o.data) + i;
    each_of(n, [&](int k) { to[k] = static_cast<uint16_t>(pack<type>(e.v[k], 0)); });
  }
}

// Returns the first column of this thread's group j.
DS_DEVICE int column_of(int j) {
  return 8 * (j * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x));
}

// The number of groups of eight that a thread keeps in registers. Further groups are loaded again
// whenever they are needed.
constexpr int kHeld = 3;

// Sets kept[j] to widen(fetch(column, n)) for this thread's first kHeld groups of a row, where n is
// the number of the group's elements that exist. All groups are fetched before the first is
// widened.
template <typename T, typename Fetch, typename Widen>
DS_DEVICE void hold(int width, T (&kept)[kHeld], const Fetch& fetch, const Widen& widen) {
  decltype(fetch(0, 8)) fetched[kHeld];
#pragma unroll
  for (int j = 0; j < kHeld; ++j) {
    const int column = column_of(j);
    if (column < width) fetched[j] = fetch(column, at_most_eight(width - column));
  }
#pragma unroll
  for (int j = 0; j < kHeld; ++j) {
    if (column_of(j) < width) kept[j] = widen(fetched[j]);
  }
}
// Calls f(column, n, elements) for every group of this thread: first for the groups that hold() has
// kept, then for the other groups, whose elements load(column, n) returns.
template <typename T, typename Load, typename F>
DS_DEVICE void walk(int width, const T (&kept)[kHeld], const Load& load, const F& f) {
#pragma unroll
  for (int j = 0; j < kHeld; ++j) {
    const int column = column_of(j);
    if (column < width) f(column, at_most_eight(width - column), kept[j]);
  }
#pragma unroll 1
  for (int column = column_of(kHeld); column < width; column += 8 * static_cast<int>(blockDim.x)) {
    const int n = at_most_eight(width - column);
    f(column, n, load(column, n));
  }
}

}  // namespace ds::cuda
