// `linear` for at most four rows, which generation runs for every token. Memory bandwidth bounds
// it: the weight is read from memory once, and everything else fits into the cache, so packing the
// weight or computing tiles would only add work. A weight [O,I] is read row by row; an output is
// the dot product of a row with the packed x. A weight [I,O] is read in pieces of consecutive rows;
// the pieces' sums are added afterwards in a fixed order.
#include "kernels/cpu/linear_few.h"

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/linear_few.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ds::cpu::HWY_NAMESPACE {

// For a weight [O,I], a task computes kTaskRows outputs. For a weight [I,O], it processes at most
// kColumnsOfTask columns of kTaskInputs inputs, or of more inputs if there would otherwise be more
// than kMostPieces pieces of inputs.
constexpr int64_t kTaskRows = 64, kTaskInputs = 64, kMostPieces = 24, kColumnsOfTask = 4096;
// The distance by which the weight is prefetched ahead of its use. Each core reads one row at a
// time, because one stream of addresses is faster than several side by side
// (docs/results/benchmarks.md, decode). Prefetching past the end of the weight is harmless.
constexpr int64_t kAheadBytes = 8192;

template <typename T>
HWY_INLINE void fetch_ahead(const T* p) {
  __builtin_prefetch(reinterpret_cast<const char*>(p) + kAheadBytes);
}

// Returns the number of elements in a pair of vectors.
HWY_INLINE int64_t pair() { return 2 * lanes(); }

// Loads pair() elements at p into two vectors. For f32 and f16, a gets the first half and b the
// second. For bf16, a gets the elements with even index and b those with odd index, which saves
// shuffles.
HWY_INLINE void load_pair(const float* p, Vec& a, Vec& b) {
  a = load(p);
  b = load(p + lanes());
}
HWY_INLINE void load_pair(const bf16* p, Vec& a, Vec& b) {
  auto words = hn::LoadU(Words(), reinterpret_cast<const uint32_t*>(p));
  a = hn::BitCast(Lanes(), hn::ShiftLeft<16>(words));
  b = hn::BitCast(Lanes(), hn::And(words, hn::Set(Words(), 0xffff0000u)));
}
HWY_INLINE void load_pair(const f16* p, Vec& a, Vec& b) {
  a = load(p);
  b = load(p + lanes());
}
template <typename T>
HWY_INLINE void load_pair_part(const T* p, int64_t count, Vec& a, Vec& b) {
  T part[2 * HWY_MAX_BYTES / sizeof(float)];
  for (int64_t i = 0; i < pair(); ++i) part[i] = i < count ? p[i] : T(0.0f);
  load_pair(part, a, b);
}

// Packs x as f32 in pairs of vectors, in the order of load_pair(), with zeros after the end.
template <typename T>
HWY_INLINE void pack_pairs(const T* x, int64_t count, float* out) {
  Vec a, b;
  for (int64_t i = 0; i < count; i += pair()) {
    if (i + pair() <= count) {
      load_pair(x + i, a, b);
    } else {
      load_pair_part(x + i, count - i, a, b);
    }
    store(a, out + i);
    store(b, out + i + lanes());
  }
}

// Stores `count` <= pair() sums in the order of elements, plus the bias if there is one.
template <typename T>
HWY_INLINE void store_pair(Vec a, Vec b, const T* bias, T* y, int64_t count) {
  float first[HWY_MAX_BYTES / sizeof(float)], second[HWY_MAX_BYTES / sizeof(float)];
  store(a, first);
  store(b, second);
  for (int64_t i = 0; i < count; ++i) {
    constexpr bool kSplit = std::is_same_v<T, bf16>;
    float sum = kSplit        ? (i % 2 == 0 ? first : second)[i / 2]
                : i < lanes() ? first[i]
                              : second[i - lanes()];
    y[i] = static_cast<T>(bias ? sum + static_cast<float>(bias[i]) : sum);
  }
}

// Returns the sum over i of x[i] w[i]. x is packed.
template <typename T>
HWY_INLINE float dot_row(const float* x, const T* w, int64_t inputs) {
  Vec left = hn::Zero(Lanes()), right = left, a, b;
  int64_t i = 0;
  for (; i + pair() <= inputs; i += pair()) {
    fetch_ahead(w + i);
    load_pair(w + i, a, b);
    left = hn::MulAdd(load(x + i), a, left);
    right = hn::MulAdd(load(x + i + lanes()), b, right);
  }
  if (i < inputs) {
    load_pair_part(w + i, inputs - i, a, b);
    left = hn::MulAdd(load(x + i), a, left);
    right = hn::MulAdd(load(x + i + lanes()), b, right);
  }
  return sum(hn::Add(left, right));
}

// sums[o] (in pairs of vectors) = x w[o], plus the old value if `add`, for columns [0, columns).
template <typename T>
HWY_INLINE void add_row(float x, const T* w, int64_t columns, bool add, float* sums) {
  Vec factor = hn::Set(Lanes(), x), a, b;
  for (int64_t o = 0; o < columns; o += pair()) {
    fetch_ahead(w + o);
    if (o + pair() <= columns) {
      load_pair(w + o, a, b);
    } else {
      load_pair_part(w + o, columns - o, a, b);
    }
    Vec left = add ? load(sums + o) : hn::Zero(Lanes());
    Vec right = add ? load(sums + o + lanes()) : hn::Zero(Lanes());
    store(hn::MulAdd(factor, a, left), sums + o);
    store(hn::MulAdd(factor, b, right), sums + o + lanes());
  }
}

// Calls f(task, thread) for all tasks. Each thread gets a contiguous share of the tasks, so that it
// next reads the bytes that it has prefetched.
template <typename F>
void for_neighbours(ThreadTeam& team, int64_t tasks, const F& f) {
  int64_t shares = std::min<int64_t>(team.size(), tasks);
  for_tasks(team, shares, [&](int64_t share, int thread) HWY_ATTR {
    int64_t end = tasks * (share + 1) / shares;
    for (int64_t task = tasks * share / shares; task < end; ++task) f(task, thread);
  });
}

// The operands of one launch, and the two ways to compute it.
template <typename T>
struct FewRows {
  int64_t rows, inputs, outputs;
  const T *x, *w, *bias;
  T* y;

  // Computes outputs [begin, end) of every row, for a weight stored as [O,I].
  void by_rows(int64_t begin, int64_t end, float* packed) const {
    for (int64_t n = 0; n < rows; ++n) {
      pack_pairs(x + n * inputs, inputs, packed);
      for (int64_t o = begin; o < end; ++o) {
        float total = dot_row(packed, w + o * inputs, inputs);
        y[n * outputs + o] = static_cast<T>(bias ? total + static_cast<float>(bias[o]) : total);
      }
    }
  }

  // Computes columns [first, first + columns) of every row, for a weight stored as [I,O]. Each task
  // reads a piece of kTaskInputs or more rows of the weight and stores a sum for each row of x and
  // each column in `sums`. The sums of the pieces are then added in order.
  void by_pieces(ThreadTeam& team, int64_t first, int64_t columns, float* sums) const {
    // Pieces depend only on the shape, so the bits do not depend on the number of threads.
    int64_t size = std::max(kTaskInputs, ceil_div(inputs, kMostPieces));
    int64_t pieces = ceil_div(inputs, size), width = round_up(columns, pair());
    for_neighbours(team, pieces, [&, this](int64_t piece, int) HWY_ATTR {
      int64_t begin = piece * size, end = std::min(inputs, begin + size);
      for (int64_t n = 0; n < rows; ++n) {
        float* to = sums + (n * pieces + piece) * width;
        for (int64_t i = begin; i < end; ++i) {
          add_row(static_cast<float>(x[n * inputs + i]), w + i * outputs + first, columns,
                  i > begin, to);
        }
      }
    });
    for (int64_t n = 0; n < rows; ++n) {
      for (int64_t o = 0; o < columns; o += pair()) {
        Vec left = hn::Zero(Lanes()), right = left;
        for (int64_t piece = 0; piece < pieces; ++piece) {
          const float* from = sums + (n * pieces + piece) * width + o;
          left = hn::Add(left, load(from));
          right = hn::Add(right, load(from + lanes()));
        }
        store_pair(left, right, bias ? bias + first + o : nullptr, y + n * outputs + first + o,
                   std::min(pair(), columns - o));
      }
    }
  }

  void run(ThreadTeam& team, bool transposed) const {
    int64_t floats =
        transposed ? kFewRows * kMostPieces * kColumnsOfTask : round_up(inputs, pair());
    ensure(static_cast<size_t>(floats) * sizeof(float) <= team.scratch_bytes(),
           "linear needs scratch for {} f32 values per thread, but the team has {} bytes", floats,
           team.scratch_bytes());
    if (transposed) {
      // All threads share the scratch of thread 0.
      auto* sums = reinterpret_cast<float*>(team.scratch(0).data());
      for (int64_t o = 0; o < outputs; o += kColumnsOfTask) {
        by_pieces(team, o, std::min(kColumnsOfTask, outputs - o), sums);
      }
      return;
    }
    for_neighbours(team, ceil_div(outputs, kTaskRows),
                   [&, this](int64_t task, int thread) HWY_ATTR {
                     int64_t begin = task * kTaskRows, end = std::min(outputs, begin + kTaskRows);
                     by_rows(begin, end, reinterpret_cast<float*>(team.scratch(thread).data()));
                   });
  }
};

void linear_few_rows(const KernelContext& c) {
  by_type(c.in[0].dtype, [&](auto t) {
    using T = decltype(t);
    const T* bias = c.in.size() == 3 ? c.in[2].as<T>() : nullptr;
    FewRows<T>{c.in[0].dims[0], c.in[0].dims[1], c.out[0].dims[1],
               c.in[0].as<T>(), c.in[1].as<T>(), bias,
               c.out[0].as<T>()}
        .run(c.team, c.attrs.integer_or("transposed", 0) != 0);
  });
}

}  // namespace ds::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ds::cpu {

HWY_EXPORT(linear_few_rows);

void linear_few(const KernelContext& c) { HWY_DYNAMIC_DISPATCH(linear_few_rows)(c); }

}  // namespace ds::cpu
#endif  // HWY_ONCE
