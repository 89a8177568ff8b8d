// Sums along and over the rows of matrices, compiled once per instruction set.
#if defined(DS_KERNELS_CPU_SUM_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DS_KERNELS_CPU_SUM_ROWS_INL_H_
#undef DS_KERNELS_CPU_SUM_ROWS_INL_H_
#else
#define DS_KERNELS_CPU_SUM_ROWS_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ds::cpu::HWY_NAMESPACE {

// Returns the sum of f over elements [0, width) of several arrays, computed in four chains that are
// added as a tree. The order depends on the vector width.
template <typename F, typename... X>
HWY_INLINE float sum_of(int64_t width, const F& f, const X*... x) {
  const Lanes d;
  int64_t k = 0, step = lanes();
  Vec s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
  // A single chain would wait for the latency of each addition.
  for (; k + 4 * step <= width; k += 4 * step) {
    s0 = hn::Add(s0, f(load(x + k)...));
    s1 = hn::Add(s1, f(load(x + k + step)...));
    s2 = hn::Add(s2, f(load(x + k + 2 * step)...));
    s3 = hn::Add(s3, f(load(x + k + 3 * step)...));
  }
  for (; k + step <= width; k += step) s0 = hn::Add(s0, f(load(x + k)...));
  if (int64_t left = width - k; left > 0) {
    // Lanes past the end must add nothing, whatever f returns for zeros.
    auto used = hn::FirstN(d, static_cast<size_t>(left));
    s1 = hn::Add(s1, hn::IfThenElseZero(used, f(load_part(x + k, left)...)));
  }
  return sum(hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)));
}

// The number of rows in a run. The rows of a run are added first, then the sums of the runs in
// order, because a single f32 sum would become less accurate with the number of rows. Every lane is
// one column, so the bits do not depend on the vector width (if MulAdd is fused or not used).
constexpr int64_t kRun = 64;
// The number of columns in a task.
constexpr int64_t kColumns = 64;

// Computes one vector of columns: a[k] = the sum over rows r of fa(r, x[r, k]...) and, unless b is
// null, b[k] = the same sum of fb. at(r, f) calls f with the elements of row r in these columns and
// returns the result.
template <typename T, typename Fa, typename Fb, typename Load>
HWY_INLINE void sum_columns(int64_t rows, const Fa& fa, const Fb& fb, const Load& at, T* a, T* b,
                            int64_t count) {
  Vec total_a = hn::Zero(Lanes()), total_b = total_a;
  for (int64_t first = 0; first < rows; first += kRun) {
    Vec run_a = hn::Zero(Lanes()), run_b = run_a;
    for (int64_t r = first; r < std::min(rows, first + kRun); ++r) {
      run_a = hn::Add(run_a, at(r, fa));
      run_b = hn::Add(run_b, at(r, fb));
    }
    total_a = hn::Add(total_a, run_a);
    total_b = hn::Add(total_b, run_b);
  }
  if (count == lanes()) {
    store(total_a, a);
    if (b) store(total_b, b);
  } else {
    store_part(total_a, a, count);
    if (b) store_part(total_b, b, count);
  }
}

// Computes the sums of all columns, as tasks of kColumns columns. `b` may be null.
template <typename T, typename Fa, typename Fb, typename... X>
void sum_rows(ThreadTeam& team, int64_t rows, int64_t width, T* a, T* b, const Fa& fa, const Fb& fb,
              const X*... x) {
  for_blocks(team, width, kColumns, [&](int64_t begin, int64_t end) HWY_ATTR {
    int64_t step = lanes();
    for (int64_t k = begin; k < end; k += step) {
      int64_t count = std::min(step, end - k);
      T* to_b = b ? b + k : nullptr;
      if (count == step) {
        auto whole = [&](int64_t r, const auto& f)
                         HWY_ATTR { return f(r, load(x + r * width + k)...); };
        sum_columns(rows, fa, fb, whole, a + k, to_b, count);
      } else {
        auto part = [&](int64_t r, const auto& f)
                        HWY_ATTR { return f(r, load_part(x + r * width + k, count)...); };
        sum_columns(rows, fa, fb, part, a + k, to_b, count);
      }
    }
  });
}

}  // namespace ds::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
