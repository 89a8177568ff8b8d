#include <cstring>
#include <numeric>

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/embedding.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ds::cpu::HWY_NAMESPACE {

// Sum of the rows row(0), row(1), ..., row(count - 1) of dy in this order, columns [k, k + 4 vectors).
template <typename T, typename Row>
HWY_INLINE void sum_rows_of(const T* dy, int64_t width, int64_t count, const Row& row, T* out) {
  int64_t k = 0, step = lanes();
  for (; k + 4 * step <= width; k += 4 * step) {
    Vec s0 = hn::Zero(Lanes()), s1 = s0, s2 = s0, s3 = s0;
    for (int64_t i = 0; i < count; ++i) {
      const T* at = dy + row(i) * width + k;
      s0 = hn::Add(s0, load(at));
      s1 = hn::Add(s1, load(at + step));
      s2 = hn::Add(s2, load(at + 2 * step));
      s3 = hn::Add(s3, load(at + 3 * step));
    }
    store(s0, out + k);
    store(s1, out + k + step);
    store(s2, out + k + 2 * step);
    store(s3, out + k + 3 * step);
  }
  for (; k < width; k += step) {
    int64_t left = std::min(step, width - k);
    Vec s = hn::Zero(Lanes());
    for (int64_t i = 0; i < count; ++i) s = hn::Add(s, load_part(dy + row(i) * width + k, left));
    store_part(s, out + k, left);
  }
}

// dw[v] = sum of dy[r] over rows r with ids[r] = v, in row order. starts: words + 1 entries; order: the rows
// sorted by id, those of one id in row order.
template <typename T>
void sum_by_id(ThreadTeam& team, const T* dy, int64_t width, int64_t words, const int32_t* starts,
               const int32_t* order, T* dw) {
  for_blocks(team, words, 16, [=](int64_t begin, int64_t end) HWY_ATTR {
    for (int64_t v = begin; v < end; ++v) {
      const int32_t* rows = order + starts[v];
      sum_rows_of(
          dy, width, starts[v + 1] - starts[v], [=](int64_t i) { return rows[i]; }, dw + v * width);
    }
  });
}

void sum_f32(ThreadTeam& team, const float* dy, int64_t width, int64_t words, const int32_t* starts,
             const int32_t* order, float* dw) {
  sum_by_id(team, dy, width, words, starts, order, dw);
}
void sum_bf16(ThreadTeam& team, const bf16* dy, int64_t width, int64_t words, const int32_t* starts,
              const int32_t* order, bf16* dw) {
  sum_by_id(team, dy, width, words, starts, order, dw);
}

}  // namespace ds::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ds::cpu {

HWY_EXPORT(sum_f32);
HWY_EXPORT(sum_bf16);

namespace {

// y[r] = w[ids[r]], as bytes: elements are only moved
void embedding(const KernelContext& c) {
  const std::byte* w = c.in[0].as<std::byte>();
  const int32_t* ids = c.in[1].as<int32_t>();
  std::byte* y = c.out[0].as<std::byte>();
  int64_t width = c.in[0].dims[1], bytes = width * size_of(c.in[0].dtype);
  for_blocks(c.team, c.in[1].dims[0], rows_per_task(width), [=](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      std::memcpy(y + r * bytes, w + ids[r] * bytes, static_cast<size_t>(bytes));
    }
  });
}

// Sorts row numbers by id (counting sort, stable), without those of the id `padding`; starts[v] is where id v
// begins in order.
void sort_rows(std::span<const int32_t> ids, int64_t words, int64_t padding, int32_t* starts,
               int32_t* order) {
  std::fill(starts, starts + words + 1, 0);
  for (int32_t id : ids) {
    if (id != padding) ++starts[id + 1];
  }
  std::partial_sum(starts, starts + words + 1, starts);
  for (size_t r = 0; r < ids.size(); ++r) {
    if (ids[r] != padding) order[starts[ids[r]]++] = static_cast<int32_t>(r);
  }
  // Each start has moved to the next one's place.
  std::copy_backward(starts, starts + words, starts + words + 1);
  starts[0] = 0;
}

void embedding_dw(const KernelContext& c) {
  int64_t rows = c.in[0].dims[0], width = c.in[0].dims[1], words = c.out[0].dims[0];
  std::span<std::byte> scratch = c.team.scratch(0);
  size_t need = static_cast<size_t>(words + 1 + rows) * sizeof(int32_t);
  ensure(need <= scratch.size(),
         "embedding_dw of {} rows and {} words needs {} bytes of scratch, team has {}", rows, words, need,
         scratch.size());
  int32_t *starts = reinterpret_cast<int32_t*>(scratch.data()), *order = starts + words + 1;
  std::span<const int32_t> ids(c.in[1].as<int32_t>(), static_cast<size_t>(rows));
  sort_rows(ids, words, c.attrs.integer_or("padding", -1), starts, order);
  const TensorView &dy = c.in[0], &dw = c.out[0];
  if (dy.dtype == DS_DTYPE_BF16) {
    HWY_DYNAMIC_DISPATCH(sum_bf16)(c.team, dy.as<bf16>(), width, words, starts, order, dw.as<bf16>());
  } else {
    HWY_DYNAMIC_DISPATCH(sum_f32)(c.team, dy.as<float>(), width, words, starts, order, dw.as<float>());
  }
}

}  // namespace

void add_embedding(KernelRegistry& registry) {
  add_kernel(registry, "embedding", embedding);
  add_kernel(registry, "embedding_dw", embedding_dw);
}

}  // namespace ds::cpu
#endif  // HWY_ONCE
