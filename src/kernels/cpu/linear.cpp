#include "kernels/cpu/linear_few.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/linear.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/gemm-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ds::cpu::HWY_NAMESPACE {

// Tile of the output and piece of the sum that one task packs to f32: 320 KiB of scratch.
constexpr int64_t kTileM = 128, kTileN = 128, kTileK = 256;

// c[m,n] = op(a)[m,k] op(b)[k,n] (+ bias[n]). a is stored [m,k], or [k,m] when a_transposed; b is stored
// [k,n], or [n,k] when b_transposed; all dense.
template <typename T>
struct Product {
  int64_t m, n, k;
  const T *a, *b, *bias;
  T* c;
  bool a_transposed, b_transposed;

  void tile(int64_t i, int64_t j, float* scratch) const {
    float *left = scratch, *right = left + kTileM * kTileK, *sums = right + kTileK * kTileN;
    int64_t rows = std::min(kTileM, m - i), columns = std::min(kTileN, n - j);
    int64_t width = round_up(columns, panel());
    for (int64_t p = 0; p < k; p += kTileK) {
      int64_t depth = std::min(kTileK, k - p);
      Operand operand{left, kTileK, 1};
      if (a_transposed) {
        pack_rows(a + p * m + i, m, depth, rows, 1.0f, left, kTileM);
        operand = {left, 1, kTileM};
      } else {
        pack_rows(a + i * k + p, k, rows, depth, 1.0f, left, kTileK);
      }
      if (b_transposed) {
        pack_transposed(b + j * k + p, k, columns, depth, right, width, width);
      } else {
        pack_rows(b + p * n + j, n, depth, columns, 1.0f, right, width);
      }
      gemm(rows, width, depth, operand, right, width, sums, width, p > 0);
    }
    for (int64_t r = 0; r < rows; ++r) {
      const float* sum = sums + r * width;
      T* to = c + (i + r) * n + j;
      if (bias) {
        map(
            0, columns, to, [](Vec x, Vec y) HWY_ATTR { return hn::Add(x, y); }, sum, bias + j);
      } else {
        map(
            0, columns, to, [](Vec x) HWY_ATTR { return x; }, sum);
      }
    }
  }

  void run(ThreadTeam& team) const {
    int64_t rows = ceil_div(m, kTileM);
    for_tasks(team, rows * ceil_div(n, kTileN), [this, rows, &team](int64_t task, int thread) HWY_ATTR {
      std::span<std::byte> scratch = team.scratch(thread);
      constexpr size_t kNeed = (kTileM * kTileK + kTileK * kTileN + kTileM * kTileN) * sizeof(float);
      ensure(kNeed <= scratch.size(), "linear needs {} bytes of scratch, team has {}", kNeed, scratch.size());
      tile(task % rows * kTileM, task / rows * kTileN, reinterpret_cast<float*>(scratch.data()));
    });
  }
};

// Whether a weight is stored [I,O], which only moves the transposition to another operand.
bool transposed(const KernelContext& c) { return c.attrs.integer_or("transposed", 0) != 0; }

// y = x w^T (+ b)
void linear(const KernelContext& c) {
  by_type(c.in[0].dtype, [&](auto t) {
    using T = decltype(t);
    const T* bias = c.in.size() == 3 ? c.in[2].as<T>() : nullptr;
    Product<T>{c.in[0].dims[0],  c.out[0].dims[1],
               c.in[0].dims[1],  c.in[0].as<T>(),
               c.in[1].as<T>(),  bias,
               c.out[0].as<T>(), false,
               !transposed(c)}
        .run(c.team);
  });
}

// dx = dy w
void linear_dx(const KernelContext& c) {
  by_type(c.in[0].dtype, [&](auto t) {
    using T = decltype(t);
    Product<T>{c.in[0].dims[0], c.out[0].dims[1], c.in[0].dims[1], c.in[0].as<T>(), c.in[1].as<T>(),
               nullptr,         c.out[0].as<T>(), false,           transposed(c)}
        .run(c.team);
  });
}

// dw = dy^T x, or x^T dy
void linear_dw(const KernelContext& c) {
  const TensorView &a = c.in[transposed(c) ? 1 : 0], &b = c.in[transposed(c) ? 0 : 1];
  by_type(a.dtype, [&](auto t) {
    using T = decltype(t);
    Product<T>{a.dims[1], b.dims[1], a.dims[0], a.as<T>(), b.as<T>(), nullptr, c.out[0].as<T>(), true, false}
        .run(c.team);
  });
}

}  // namespace ds::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ds::cpu {

HWY_EXPORT(linear);
HWY_EXPORT(linear_dx);
HWY_EXPORT(linear_dw);

void add_linear(KernelRegistry& registry) {
  add_kernel(registry, "linear", [](const KernelContext& c) {
    if (has_few_rows(c)) return linear_few(c);
    HWY_DYNAMIC_DISPATCH(linear)(c);
  });
  add_kernel(registry, "linear_dx", [](const KernelContext& c) { HWY_DYNAMIC_DISPATCH(linear_dx)(c); });
  add_kernel(registry, "linear_dw", [](const KernelContext& c) { HWY_DYNAMIC_DISPATCH(linear_dw)(c); });
}

}  // namespace ds::cpu
#endif  // HWY_ONCE
