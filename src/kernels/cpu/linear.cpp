// Matrix products of f32, bf16 and f16 with f32 panels, for the products that oneDNN and
// kernels/gemm refuse. A task computes a tile of the output: it packs pieces of a and b to f32 and
// multiplies them (gemm-inl.h). Sums stay in f32 until they are stored, rounded once.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/cpu/linear_cross_entropy.h"
#include "kernels/cpu/linear_few.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/linear.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/gemm-inl.h"
#include "kernels/matrix_product.h"

HWY_BEFORE_NAMESPACE();
namespace ds::cpu::HWY_NAMESPACE {

// A task computes kTileM x kTileN elements of the output and packs kTileK terms of their sums at a
// time as f32, in 320 KiB of scratch.
constexpr int64_t kTileM = 128, kTileN = 128, kTileK = 256;

// Stores the f32 sums of a row of a tile in the way that shape.store selects.
template <typename T>
void store_row(const MatrixProduct& product, int64_t row, int64_t column, int64_t columns,
               const float* sum) {
  const MatrixShape& s = product.shape;
  auto same = [](Vec x) HWY_ATTR { return x; };
  auto plus = [](Vec x, Vec y) HWY_ATTR { return hn::Add(x, y); };
  int64_t at = row * s.ldc + column;
  if (s.store == Store::rounded) {
    T* to = static_cast<T*>(product.c) + at;
    s.bias ? map(0, columns, to, plus, sum, static_cast<const T*>(product.bias) + column)
           : map(0, columns, to, same, sum);
  } else {
    float* to = static_cast<float*>(product.c) + at;
    s.store == Store::added ? map(0, columns, to, plus, to, sum) : map(0, columns, to, same, sum);
  }
}

// Computes the tile whose first element is (i, j).
template <typename T>
void tile_of(const MatrixProduct& product, int64_t i, int64_t j, float* scratch) {
  const MatrixShape& s = product.shape;
  const T *a = static_cast<const T*>(product.a), *b = static_cast<const T*>(product.b);
  float *left = scratch, *right = left + kTileM * kTileK, *sums = right + kTileK * kTileN;
  int64_t rows = std::min(kTileM, s.m - i), columns = std::min(kTileN, s.n - j);
  int64_t width = round_up(columns, panel());
  for (int64_t p = 0; p < s.k; p += kTileK) {
    int64_t depth = std::min(kTileK, s.k - p);
    Operand operand{left, kTileK, 1};
    if (s.transpose_a) {
      // A transposed a is packed row by row as it is stored; gemm() then reads its columns.
      pack_rows(a + p * s.lda + i, s.lda, depth, rows, 1.0f, left, kTileM);
      operand = {left, 1, kTileM};
    } else {
      pack_rows(a + i * s.lda + p, s.lda, rows, depth, 1.0f, left, kTileK);
    }
    if (s.transpose_b) {
      pack_transposed(b + j * s.ldb + p, s.ldb, columns, depth, right, width, width);
    } else {
      pack_rows(b + p * s.ldb + j, s.ldb, depth, columns, 1.0f, right, width);
    }
    gemm(rows, width, depth, operand, right, width, sums, width, p > 0);
  }
  for (int64_t r = 0; r < rows; ++r) store_row<T>(product, i + r, j, columns, sums + r * width);
}

// Computes the output in tiles, one task each. The tiles depend only on the shape. Neighbouring
// tasks share columns of b.
void multiply(const MatrixProduct& product, ThreadTeam& team) {
  int64_t rows = ceil_div(product.shape.m, kTileM), columns = ceil_div(product.shape.n, kTileN);
  for_tasks(team, rows * columns, [&, rows](int64_t task, int thread) HWY_ATTR {
    std::span<std::byte> scratch = team.scratch(thread);
    constexpr size_t kNeed = (kTileM * kTileK + kTileK * kTileN + kTileM * kTileN) * sizeof(float);
    ensure(kNeed <= scratch.size(),
           "linear needs {} bytes of scratch per thread, but the team has {}", kNeed,
           scratch.size());
    by_type(product.shape.dtype, [&](auto t) HWY_ATTR {
      tile_of<decltype(t)>(product, task % rows * kTileM, task / rows * kTileN,
                           reinterpret_cast<float*>(scratch.data()));
    });
  });
}

}  // namespace ds::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ds::cpu {

HWY_EXPORT(multiply);

void multiply(const MatrixProduct& product, ThreadTeam& team) {
  HWY_DYNAMIC_DISPATCH(multiply)(product, team);
}

void add_linear(KernelRegistry& registry) {
  add_kernel(registry, "linear", [](const KernelContext& c) {
    has_few_rows(c) ? linear_few(c) : multiply(product_of_linear(c), c.team);
  });
  add_kernel(registry, "linear_dx",
             [](const KernelContext& c) { multiply(product_of_linear_dx(c), c.team); });
  add_kernel(registry, "linear_dw",
             [](const KernelContext& c) { multiply(product_of_linear_dw(c), c.team); });
}

void add_linear_cross_entropy(KernelRegistry& registry) {
  add_kernel(registry, "linear_cross_entropy",
             [](const KernelContext& c) { linear_cross_entropy(c, multiply); });
  add_kernel(registry, "linear_cross_entropy_dx",
             [](const KernelContext& c) { linear_cross_entropy_dx(c, multiply); });
}

}  // namespace ds::cpu
#endif  // HWY_ONCE
