#include "kernels/cpu/linear_few.h"

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/linear_few.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ds::cpu::HWY_NAMESPACE {

// A task of a weight [O,I] is this many outputs; of one [I,O] at least so many inputs, of which there are at
// most kMostPieces, by at most kColumns columns.
constexpr int64_t kTaskRows = 64, kTaskInputs = 64, kMostPieces = 24, kColumns = 4096;
constexpr int64_t kTogether = 8;  // rows of a weight that are read side by side

HWY_INLINE int64_t pair() { return 2 * lanes(); }

// Two vectors of pair() elements at p: of f32 the first and the second half, of bf16, where that saves
// shuffles, the elements of even and those of odd index.
HWY_INLINE void load_pair(const float* p, Vec& a, Vec& b) {
  a = load(p);
  b = load(p + lanes());
}
HWY_INLINE void load_pair(const bf16* p, Vec& a, Vec& b) {
  auto words = hn::LoadU(Words(), reinterpret_cast<const uint32_t*>(p));
  a = hn::BitCast(Lanes(), hn::ShiftLeft<16>(words));
  b = hn::BitCast(Lanes(), hn::And(words, hn::Set(Words(), 0xffff0000u)));
}
template <typename T>
HWY_INLINE void load_pair_part(const T* p, int64_t count, Vec& a, Vec& b) {
  T part[2 * HWY_MAX_BYTES / sizeof(float)];
  for (int64_t i = 0; i < pair(); ++i) part[i] = i < count ? p[i] : T(0.0f);
  load_pair(part, a, b);
}

// x as f32 in pairs of vectors, as load_pair would give them; zeros behind the end.
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

// Stores `count` <= pair() sums, plus bias if there is one, in the order of elements.
template <typename T>
HWY_INLINE void store_pair(Vec a, Vec b, const T* bias, T* y, int64_t count) {
  float first[HWY_MAX_BYTES / sizeof(float)], second[HWY_MAX_BYTES / sizeof(float)];
  store(a, first);
  store(b, second);
  for (int64_t i = 0; i < count; ++i) {
    constexpr bool kSplit = sizeof(T) == 2;
    float sum = kSplit ? (i % 2 == 0 ? first : second)[i / 2] : i < lanes() ? first[i] : second[i - lanes()];
    y[i] = static_cast<T>(bias ? sum + static_cast<float>(bias[i]) : sum);
  }
}

// y[o] = sum over i of x[i] w[o * inputs + i], for kRows rows; x is packed.
template <int64_t kRows, typename T>
HWY_INLINE void dot_rows(const float* x, const T* w, int64_t inputs, const T* bias, T* y) {
  Vec left[kRows], right[kRows], a, b;
  for (int64_t r = 0; r < kRows; ++r) left[r] = right[r] = hn::Zero(Lanes());
  int64_t i = 0;
  for (; i + pair() <= inputs; i += pair()) {
    Vec u = load(x + i), v = load(x + i + lanes());
    for (int64_t r = 0; r < kRows; ++r) {
      load_pair(w + r * inputs + i, a, b);
      left[r] = hn::MulAdd(u, a, left[r]);
      right[r] = hn::MulAdd(v, b, right[r]);
    }
  }
  if (i < inputs) {
    for (int64_t r = 0; r < kRows; ++r) {
      load_pair_part(w + r * inputs + i, inputs - i, a, b);
      left[r] = hn::MulAdd(load(x + i), a, left[r]);
      right[r] = hn::MulAdd(load(x + i + lanes()), b, right[r]);
    }
  }
  for (int64_t r = 0; r < kRows; ++r) {
    float total = sum(hn::Add(left[r], right[r]));
    y[r] = static_cast<T>(bias ? total + static_cast<float>(bias[r]) : total);
  }
}

// sums[o] (in pairs of vectors) = sum over kRows rows i of x[i] w[i * stride + o], plus what is there when
// `add`, for columns [0, columns).
template <int64_t kRows, typename T>
HWY_INLINE void add_rows(const T* x, const T* w, int64_t stride, int64_t columns, bool add, float* sums) {
  Vec factor[kRows], a, b;
  for (int64_t r = 0; r < kRows; ++r) factor[r] = hn::Set(Lanes(), static_cast<float>(x[r]));
  for (int64_t o = 0; o < columns; o += pair()) {
    Vec left = add ? load(sums + o) : hn::Zero(Lanes());
    Vec right = add ? load(sums + o + lanes()) : hn::Zero(Lanes());
    for (int64_t r = 0; r < kRows; ++r) {
      if (o + pair() <= columns) {
        load_pair(w + r * stride + o, a, b);
      } else {
        load_pair_part(w + r * stride + o, columns - o, a, b);
      }
      left = hn::MulAdd(factor[r], a, left);
      right = hn::MulAdd(factor[r], b, right);
    }
    store(left, sums + o);
    store(right, sums + o + lanes());
  }
}

template <typename T>
struct FewRows {
  int64_t rows, inputs, outputs;
  const T *x, *w, *bias;
  T* y;

  // A weight [O,I]: outputs [begin, end) of every row.
  void by_rows(int64_t begin, int64_t end, float* packed) const {
    for (int64_t n = 0; n < rows; ++n) {
      pack_pairs(x + n * inputs, inputs, packed);
      int64_t o = begin;
      auto run = [&](auto count) HWY_ATTR {
        dot_rows<decltype(count)::value>(packed, w + o * inputs, inputs, bias ? bias + o : nullptr,
                                         y + n * outputs + o);
        o += count;
      };
      while (o + kTogether <= end) run(std::integral_constant<int64_t, kTogether>());
      while (o < end) run(std::integral_constant<int64_t, 1>());
    }
  }

  // A weight [I,O], columns [first, first + columns): tasks stream whole pieces of rows, kTaskInputs or more
  // inputs each, and leave a sum per piece and column in `sums`, which are added in the order of pieces.
  void by_pieces(ThreadTeam& team, int64_t first, int64_t columns, float* sums) const {
    int64_t size = std::max(kTaskInputs, round_up(ceil_div(inputs, kMostPieces), kTogether));
    int64_t pieces = ceil_div(inputs, size), width = round_up(columns, pair());
    for_tasks(team, pieces, [&, this](int64_t piece, int) HWY_ATTR {
      int64_t begin = piece * size, end = std::min(inputs, begin + size);
      for (int64_t n = 0; n < rows; ++n) {
        float* to = sums + (n * pieces + piece) * width;
        int64_t i = begin;
        auto run = [&](auto count) HWY_ATTR {
          add_rows<decltype(count)::value>(x + n * inputs + i, w + i * outputs + first, outputs, columns,
                                           i > begin, to);
          i += count;
        };
        while (i + kTogether <= end) run(std::integral_constant<int64_t, kTogether>());
        while (i < end) run(std::integral_constant<int64_t, 1>());
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
    int64_t floats = transposed ? kFewRows * kMostPieces * kColumns : round_up(inputs, pair());
    ensure(static_cast<size_t>(floats) * sizeof(float) <= team.scratch_bytes(),
           "linear needs scratch for {} sums, team has {} bytes", floats, team.scratch_bytes());
    if (transposed) {
      auto* sums = reinterpret_cast<float*>(team.scratch(0).data());  // of all threads
      for (int64_t o = 0; o < outputs; o += kColumns) {
        by_pieces(team, o, std::min(kColumns, outputs - o), sums);
      }
      return;
    }
    for_tasks(team, ceil_div(outputs, kTaskRows), [&, this](int64_t task, int thread) HWY_ATTR {
      int64_t begin = task * kTaskRows, end = std::min(outputs, begin + kTaskRows);
      by_rows(begin, end, reinterpret_cast<float*>(team.scratch(thread).data()));
    });
  }
};

void linear_few_rows(const KernelContext& c) {
  by_type(c.in[0].dtype, [&](auto t) {
    using T = decltype(t);
    const T* bias = c.in.size() == 3 ? c.in[2].as<T>() : nullptr;
    FewRows<T>{c.in[0].dims[0], c.in[0].dims[1], c.out[0].dims[1], c.in[0].as<T>(), c.in[1].as<T>(), bias,
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
