// Embeddings and their gradient, bit-identical to the reference. The gradient of a word is the sum,
// in row order, of the rows of dy that have its id. A counting sort of the ids lists these rows for
// each word, so that every row of dy is read once and tasks need no locks. The lists must fit in
// scratch, so a large table or batch is processed in parts.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/embedding.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ds::cpu::HWY_NAMESPACE {

// out = the sum of the rows row(0), row(1), ..., row(count - 1) of dy in this order, four vectors
// of columns at a time.
template <typename T, typename Row>
HWY_INLINE void sum_rows_of(const T* dy, int64_t width, int64_t count, Row row, T* out) {
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

// dw[v] = the sum of dy[r] over rows r with ids[r] = v, in row order. `order` lists the rows sorted
// by id, in row order for each id. The rows of id v begin at order[starts[v]]; `starts` has words +
// 1 entries.
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

void sum_sorted(ThreadTeam& team, const TensorView& dy, int64_t words, const int32_t* starts,
                const int32_t* order, int64_t first, const TensorView& dw) {
  by_type(dy.dtype, [&](auto t) {
    using T = decltype(t);
    const int64_t width = dy.dims[1];
    sum_by_id(team, dy.as<T>(), width, words, starts, order, dw.as<T>() + first * width);
  });
}

// A function object that returns row i of the rows with one id, which it finds by scanning the ids.
// It must be called with i = 0, 1, 2, ...; i = 0 begins a new scan.
struct RowsOfId {
  const int32_t* ids;
  int32_t id;
  int64_t at = -1;
  HWY_INLINE int64_t operator()(int64_t i) {
    if (i == 0) at = -1;
    while (ids[++at] != id) {
    }
    return at;
  }
};

void sum_one_id(const TensorView& dy, int64_t count, const int32_t* ids, int32_t id,
                const TensorView& dw) {
  by_type(dy.dtype, [&](auto t) {
    using T = decltype(t);
    const int64_t width = dy.dims[1];
    sum_rows_of(dy.as<T>(), width, count, RowsOfId{ids, id}, dw.as<T>() + id * width);
  });
}

}  // namespace ds::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ds::cpu {

HWY_EXPORT(sum_sorted);
HWY_EXPORT(sum_one_id);

namespace {

// y[r] = w[ids[r]], copied as bytes.
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

// The rows whose ids are in [first, end), sorted by id and in row order for each id. The rows of id
// v are order[starts[v - first]] to order[starts[v - first + 1]].
struct SortedRows {
  int64_t first, end;
  int32_t *starts, *order;
};

// Sorts the rows of the ids from `first` on, as many ids as fit into `room`. If the rows of `first`
// alone do not fit, the result has no ids. Rows with the id `padding` are left out.
SortedRows sort_rows(std::span<const int32_t> ids, int64_t first, int64_t words, int64_t padding,
                     std::span<int32_t> room) {
  auto size = static_cast<int64_t>(room.size());
  // The starts may take half of the room, so at least half is left for the rows.
  int64_t most = std::min(words - first, size / 2 - 1), fits = size - (most + 1), count = 0;
  SortedRows s{first, first, room.data(), room.data() + most + 1};
  auto place = [&](int32_t id, int64_t end) {
    return id >= first && id < end && id != padding ? s.starts + (id - first) : nullptr;
  };
  std::fill_n(s.starts, most + 1, 0);
  for (int32_t id : ids) {
    if (int32_t* start = place(id, first + most)) ++start[1];
  }
  // The starts are the running sums of the counts, up to the last id whose rows fit.
  while (count < most && (s.starts[count + 1] += s.starts[count]) <= fits) ++count;
  s.end = first + count;
  for (size_t r = 0; r < ids.size(); ++r) {
    if (int32_t* start = place(ids[r], s.end)) s.order[(*start)++] = static_cast<int32_t>(r);
  }
  // Filling `order` has advanced each start to the start of the next id, so the starts are shifted
  // back.
  std::copy_backward(s.starts, s.starts + count, s.starts + count + 1);
  s.starts[0] = 0;
  return s;
}

// Processes the ids in parts, each with as many ids as scratch has room for.
void embedding_dw(const KernelContext& c) {
  const TensorView &dy = c.in[0], &dw = c.out[0];
  int64_t words = dw.dims[0], padding = c.attrs.integer_or("padding", -1);
  std::span<std::byte> scratch = c.team.scratch(0);
  std::span<int32_t> room(reinterpret_cast<int32_t*>(scratch.data()),
                          scratch.size() / sizeof(int32_t));
  ensure(room.size() >= 4, "embedding_dw needs 16 bytes of scratch per thread, but the team has {}",
         scratch.size());
  std::span<const int32_t> ids(c.in[1].as<int32_t>(), static_cast<size_t>(dy.dims[0]));
  for (int64_t first = 0; first < words;) {
    SortedRows sorted = sort_rows(ids, first, words, padding, room);
    if (sorted.end > first) {
      HWY_DYNAMIC_DISPATCH(sum_sorted)
      (c.team, dy, sorted.end - first, sorted.starts, sorted.order, first, dw);
      first = sorted.end;
    } else {
      // This id has too many rows to list, so the ids are scanned again for each group of columns.
      int64_t count = std::count(ids.begin(), ids.end(), first);
      HWY_DYNAMIC_DISPATCH(sum_one_id)(dy, count, ids.data(), static_cast<int32_t>(first), dw);
      ++first;
    }
  }
}

}  // namespace

void add_embedding(KernelRegistry& registry) {
  add_kernel(registry, "embedding", embedding);
  add_kernel(registry, "embedding_dw", embedding_dw);
}

}  // namespace ds::cpu
#endif  // HWY_ONCE
