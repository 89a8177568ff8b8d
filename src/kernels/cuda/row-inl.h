#pragma once
// Rows that a block walks through by eights of neighbouring columns: thread t has columns 8 t to 8
// t + 7 of every 8 blockDim.x. Which thread has a column, and so every sum, depends on the width
// and the block alone; where a row begins only decides how wide its loads are. Included by .cu
// files only.
#include <cstdint>

#include "kernels/cuda/device.h"
#include "kernels/cuda/mma.h"

namespace ds::cuda {

// Whether element i begins a vector of 16 bytes.
DS_DEVICE bool begins_vector(const Operand& o, int64_t i) {
  const int64_t bytes = i * (o.dtype == DS_DTYPE_F32 ? 4 : 2);
  return (reinterpret_cast<uint64_t>(o.data) + static_cast<uint64_t>(bytes)) % 16 == 0;
}
// Calls f(Constant) with an operand's type.
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

// As get().
template <int32_t type>
DS_DEVICE float element(const Operand& o, int64_t i) {
  if constexpr (type == DS_DTYPE_F32) return static_cast<const float*>(o.data)[i];
  return widen(static_cast<const uint16_t*>(o.data)[i], type);
}

// Eight elements as they lie in memory. They are fetched at one place and widened at another: a
// load that is widened at once, by a type that is asked for at run time, is waited for before the
// next one starts.
template <int32_t type>
struct Bits {
  uint32_t v[4];
};
template <>
struct Bits<DS_DTYPE_F32> {
  float v[8];
};
// As load(); elements that do not exist are 0.
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
// b[j]: the eight from element i + j step on.
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
// f(k) for those of eight elements that exist.
template <typename F>
DS_DEVICE void each_of(int n, const F& f) {
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    if (k < n) f(k);
  }
}
// As store(), but NaN has the bits that the device gives it.
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

// First column of this thread's eight number j.
DS_DEVICE int column_of(int j) {
  return 8 * (j * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x));
}

constexpr int kHeld = 3;  // eights of a thread that stay in registers; wider rows are read again

// kept[j]: what widen(fetch(column, n)) gives for this thread's first eights of a row, of which n
// elements exist. All are fetched before the first is widened.
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
// f(column, n, what load gave) for every eight of this thread.
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
