// Operations with little arithmetic for each element, with the same bits as the CPU's kernels: they
// are compiled without fused multiply-adds, with IEEE division and square roots, and with subnormal
// numbers (see README.md). A thread processes eight consecutive elements, so that an access has 16
// bytes. Constants are computed in f64 on the host and rounded once, unless they depend on a step's
// scalars.
#include "kernels/cuda/device.h"
#include "kernels/cuda/element_args.h"

namespace ds::cuda {
namespace {

template <typename F>
DS_DEVICE void unary(const ElementArgs& a, const F& f) {
  each_eight(a.count, [&](int64_t i, int n) {
    Eight x = load(a.in[0], i, n, a.wide);
#pragma unroll
    for (int k = 0; k < 8; ++k) x.v[k] = f(x.v[k]);
    store(a.out[0], i, n, a.wide, x);
  });
}
template <typename F>
DS_DEVICE void binary(const ElementArgs& a, const F& f) {
  each_eight(a.count, [&](int64_t i, int n) {
    Eight x = load(a.in[0], i, n, a.wide);
    const Eight y = load(a.in[1], i, n, a.wide);
#pragma unroll
    for (int k = 0; k < 8; ++k) x.v[k] = f(x.v[k], y.v[k]);
    store(a.out[0], i, n, a.wide, x);
  });
}
DS_DEVICE Stream stream_of(const ElementArgs& a) {
  return {a.scalars->seed, static_cast<uint32_t>(a.scalars->step), static_cast<uint32_t>(a.leaf),
          a.op};
}
// Returns whether layerdrop skips the layer: in training only, by one random number for the whole
// micro-batch.
DS_DEVICE bool leaves_out(const ElementArgs& a) {
  return a.scalars->train != 0 && uniform01(words_of(stream_of(a), 0).v[0]) < a.a;
}

}  // namespace

DS_LOOP_KERNEL(add, ElementArgs) {
  binary(a, [](float x, float y) { return x + y; });
}
DS_LOOP_KERNEL(mul, ElementArgs) {
  binary(a, [](float x, float y) { return x * y; });
}
DS_LOOP_KERNEL(scale, ElementArgs) {
  unary(a, [&](float x) { return x * a.a; });
}
DS_LOOP_KERNEL(cast, ElementArgs) {
  unary(a, [](float x) { return x; });
}
DS_LOOP_KERNEL(relu, ElementArgs) {
  unary(a, [](float x) { return x > 0 ? x : 0.0f; });
}
// dx = dy where x > 0, otherwise 0. The operands are dy and x.
DS_LOOP_KERNEL(relu_dx, ElementArgs) {
  binary(a, [](float dy, float x) { return x > 0 ? dy : 0.0f; });
}

// `a` is 1 / (1 - p), and `b` is p. Element e is kept if uniform01(word e) >= p.
DS_LOOP_KERNEL(dropout, ElementArgs) {
  const bool train = a.scalars->train != 0;
  const Stream stream = stream_of(a);
  each_eight(a.count, [&](int64_t i, int n) {
    Eight x = load(a.in[0], i, n, a.wide);
    if (train) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const Words w = words_of(stream, static_cast<uint64_t>(i / 4 + half));
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          float& e = x.v[4 * half + k];
          e = uniform01(w.v[k]) >= a.b ? e * a.a : 0.0f;
        }
      }
    }
    store(a.out[0], i, n, a.wide, x);
  });
}

// Copies the layer's input if the layer is skipped, otherwise its output. `a` is p. The operands
// are input and output.
DS_LOOP_KERNEL(layerdrop, ElementArgs) {
  const Operand& chosen = leaves_out(a) ? a.in[0] : a.in[1];
  each_eight(a.count,
             [&](int64_t i, int n) { store(a.out[0], i, n, a.wide, load(chosen, i, n, a.wide)); });
}
// The operand that layerdrop has copied gets the gradient; the other gets zeros. The results are
// the gradients of input and output.
DS_LOOP_KERNEL(layerdrop_dx, ElementArgs) {
  const bool out = leaves_out(a);
  const Operand &seen = out ? a.out[0] : a.out[1], &unseen = out ? a.out[1] : a.out[0];
  each_eight(a.count, [&](int64_t i, int n) {
    store(seen, i, n, a.wide, load(a.in[0], i, n, a.wide));
    store(unseen, i, n, a.wide, Eight{});
  });
}

// acc = acc + x if `flag` is set, otherwise acc = x.
DS_LOOP_KERNEL(accumulate, ElementArgs) {
  each_eight(a.count, [&](int64_t i, int n) {
    Eight x = load(a.in[0], i, n, a.wide);
    if (a.flag) {
      const Eight acc = load(a.out[0], i, n, a.wide);
#pragma unroll
      for (int k = 0; k < 8; ++k) x.v[k] = acc.v[k] + x.v[k];
    }
    store(a.out[0], i, n, a.wide, x);
  });
}

// y[r] = x[r] gates[r, flag]. `width` is the number of columns of x, and `stride` the number of
// columns of gates.
DS_LOOP_KERNEL(scale_rows, ElementArgs) {
  each_eight(a.count, [&](int64_t i, int n) {
    Eight x = load(a.in[0], i, n, a.wide);
#pragma unroll
    for (int k = 0; k < 8; ++k)
      if (k < n) x.v[k] = x.v[k] * get(a.in[1], (i + k) / a.width * a.stride + a.flag);
    store(a.out[0], i, n, a.wide, x);
  });
}

// y[r] = x[r] + w[r mod stride], over rows of `width` elements.
DS_LOOP_KERNEL(position, ElementArgs) {
  each_eight(a.count, [&](int64_t i, int n) {
    Eight x = load(a.in[0], i, n, a.wide);
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      const int64_t row = (i + k) / a.width, column = (i + k) % a.width;
      if (k < n) x.v[k] = x.v[k] + get(a.in[1], row % a.stride * a.width + column);
    }
    store(a.out[0], i, n, a.wide, x);
  });
}

// Writes one scalar: `real`, times the loss scale if `flag` is set.
DS_LOOP_KERNEL(fill, ElementArgs) {
  if (thread_number() == 0)
    put(a.out[0], 0, static_cast<float>(a.flag ? a.real * a.scalars->loss_scale : a.real));
}

// z = a x + b y + c I, for matrices with rows of `width` elements. Bit 0 of `flag` is set if there
// is a y, and bit 1 if c is not 0.
DS_LOOP_KERNEL(blend, ElementArgs) {
  each_eight(a.count, [&](int64_t i, int n) {
    Eight x = load(a.in[0], i, n, a.wide);
    const Eight y = a.flag & 1 ? load(a.in[1], i, n, a.wide) : Eight{};
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      float sum = a.a * x.v[k];
      if (a.flag & 1) sum = sum + a.b * y.v[k];
      if ((a.flag & 2) && (i + k) % (a.width + 1) == 0) sum = sum + a.c;
      x.v[k] = sum;
    }
    store(a.out[0], i, n, a.wide, x);
  });
}

// Copies bytes, or zeros if in[0] is null: `count` units of 16 bytes (or of 2 if not `wide`), then
// `width` single bytes after them.
DS_LOOP_KERNEL(copy_bytes, ElementArgs) {
  const int64_t i = thread_number(), unit = a.wide ? 16 : 2;
  const auto* from = static_cast<const unsigned char*>(a.in[0].data);
  auto* to = static_cast<unsigned char*>(a.out[0].data);
  if (i < a.count && a.wide) {
    reinterpret_cast<uint4*>(to)[i] =
        from ? reinterpret_cast<const uint4*>(from)[i] : make_uint4(0, 0, 0, 0);
  } else if (i < a.count) {
    reinterpret_cast<uint16_t*>(to)[i] =
        from ? reinterpret_cast<const uint16_t*>(from)[i] : uint16_t{0};
  } else if (i - a.count < a.width) {
    const int64_t at = a.count * unit + i - a.count;
    to[at] = from ? from[at] : static_cast<unsigned char>(0);
  }
}

}  // namespace ds::cuda
