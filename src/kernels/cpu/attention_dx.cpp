#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention_dx.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/attention.h"
#include "kernels/cpu/gemm-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ds::cpu::HWY_NAMESPACE {

// Operands of one call.
template <typename T>
struct AttentionGradient {
  const T *dy, *qkv, *y;
  const float* lse;
  T* dx;
};

// Blocks of queries against blocks of keys of one head. With p_ij = exp(s_ij - lse_i) and
// ds_ij = p_ij (dy_i . v_j - dy_i . y_i):
// dq_i = scale sum_j ds_ij k_j, dk_j = scale sum_i ds_ij q_i, dv_j = sum_i p_ij dy_i
template <typename T>
struct GradientBlock {
  HeadsShape s;
  AttentionGradient<T> g;
  int64_t sequence, head;
  int64_t padded;  // depth, padded to a panel
  // Packed: q (times scale log2 e), dy, k as rows; k and v transposed. Scores and their gradients as
  // [queries, keys].
  float *q, *dy, *k, *kt, *vt, *p, *ds, *dk, *dv, *delta, *dq;
  int64_t dq_rows = 0;  // rows that dq has room for: the sequence, or one block

  GradientBlock(const HeadsShape& shape, const AttentionGradient<T>& operands, std::span<std::byte> scratch,
                int64_t at_sequence, int64_t at_head)
      : s(shape), g(operands), sequence(at_sequence), head(at_head) {
    Carver carve(scratch);
    int64_t block = s.block();
    padded = round_up(s.depth, panel());
    for (float** rows : {&q, &dy, &k, &dk, &dv}) *rows = carve.floats(block * padded);
    for (float** columns : {&kt, &vt}) *columns = carve.floats(s.depth * block);
    for (float** square : {&p, &ds}) *square = carve.floats(block * block);
    delta = carve.floats(block);
    dq_rows = s.length(sequence) * padded <= carve.left() ? s.length(sequence) : block;
    dq = carve.floats(dq_rows * padded);
  }

  int64_t row(int64_t i) const { return sequence * s.seq + i; }  // row of the batch of row i of the sequence
  const T* part(int64_t i, int64_t which) const {
    return g.qkv + row(i) * 3 * s.width + which * s.width + head * s.depth;
  }
  T* out(int64_t i, int64_t which) const {
    return g.dx + row(i) * 3 * s.width + which * s.width + head * s.depth;
  }

  HWY_INLINE void pack_queries(int64_t q0, int64_t queries) {
    const T* gradient = g.dy + row(q0) * s.width + head * s.depth;
    const T* value = g.y + row(q0) * s.width + head * s.depth;
    pack_rows(part(q0, 0), 3 * s.width, queries, s.depth, s.scale * kLog2E, q, padded);
    pack_rows(gradient, s.width, queries, s.depth, 1.0f, dy, padded);
    for (int64_t i = 0; i < queries; ++i) {
      Vec dot = hn::Zero(Lanes());
      int64_t step = lanes(), e = 0;
      const T* at = value + i * s.width;
      for (; e + step <= s.depth; e += step) dot = hn::MulAdd(load(at + e), load(dy + i * padded + e), dot);
      if (e < s.depth) dot = hn::MulAdd(load_part(at + e, s.depth - e), load(dy + i * padded + e), dot);
      delta[i] = sum(dot);
    }
  }

  HWY_INLINE void pack_keys(int64_t k0, int64_t keys) {
    int64_t width = round_up(keys, panel());
    pack_rows(part(k0, 1), 3 * s.width, keys, s.depth, 1.0f, k, padded);
    pack_transposed(part(k0, 1), 3 * s.width, keys, s.depth, kt, width);
    pack_transposed(part(k0, 2), 3 * s.width, keys, s.depth, vt, width);
  }

  // Row `i` of p and ds from scores and dy v^T, in place; 0 from `valid` to `end`.
  HWY_INLINE void weights(float* score, float* product, int64_t valid, int64_t end, float lse, float mean) {
    const Lanes d;
    Vec shift = hn::Set(d, lse * kLog2E), center = hn::Set(d, mean);
    for (int64_t j = 0; j < end; j += lanes()) {
      Vec weight = exp2_negative(hn::Sub(load(score + j), shift));
      if (j + lanes() > valid) {
        weight =
            hn::IfThenElseZero(hn::FirstN(d, static_cast<size_t>(std::max<int64_t>(0, valid - j))), weight);
      }
      store(weight, score + j);
      store(hn::Mul(weight, hn::Sub(load(product + j), center)), product + j);
    }
  }

  // p and ds of packed queries [q0, q0 + queries) and keys [k0, k0 + keys), strip by strip.
  HWY_INLINE void scores(int64_t q0, int64_t queries, int64_t k0, int64_t keys) {
    int64_t width = round_up(keys, panel());
    for (int64_t r = 0; r < queries; r += kStrip) {
      int64_t rows = std::min(kStrip, queries - r), end = std::min(keys, q0 + r + rows - k0);
      int64_t columns = round_up(end, panel());
      gemm(rows, columns, s.depth, {q + r * padded, padded, 1}, kt, width, p + r * width, width, false);
      gemm(rows, columns, s.depth, {dy + r * padded, padded, 1}, vt, width, ds + r * width, width, false);
      for (int64_t i = r; i < r + rows; ++i) {
        weights(p + i * width, ds + i * width, std::min(keys, q0 + i + 1 - k0), end,
                g.lse[head * s.rows + row(q0 + i)], delta[i]);
      }
    }
  }

  // dq of the packed queries (at `sum`) += ds k
  HWY_INLINE void add_dq(int64_t q0, int64_t queries, int64_t k0, int64_t keys, float* sum) {
    int64_t width = round_up(keys, panel());
    for (int64_t r = 0; r < queries; r += kStrip) {
      int64_t rows = std::min(kStrip, queries - r), end = std::min(keys, q0 + r + rows - k0);
      gemm(rows, padded, end, {ds + r * width, width, 1}, k, padded, sum + r * padded, padded, k0 > 0);
    }
  }

  // dk and dv of the packed keys += ds^T q, p^T dy
  HWY_INLINE void add_dkv(int64_t q0, int64_t queries, int64_t k0, int64_t keys, bool first) {
    int64_t width = round_up(keys, panel());
    for (int64_t j = 0; j < keys; j += kStrip) {
      int64_t rows = std::min(kStrip, keys - j);
      int64_t from = std::max<int64_t>(0, k0 + j - q0) / kStrip * kStrip;  // earlier queries do not see j
      int64_t count = queries - from;
      const float *p_at = p + from * width + j, *ds_at = ds + from * width + j;
      gemm(rows, padded, count, {ds_at, 1, width}, q + from * padded, padded, dk + j * padded, padded,
           !first);
      gemm(rows, padded, count, {p_at, 1, width}, dy + from * padded, padded, dv + j * padded, padded,
           !first);
    }
  }

  HWY_INLINE void store_rows(const float* from, int64_t first, int64_t rows, int64_t which, float scale) {
    Vec factor = hn::Set(Lanes(), scale);
    for (int64_t i = 0; i < rows; ++i) {
      map(
          0, s.depth, out(first + i, which), [=](Vec x) HWY_ATTR { return hn::Mul(x, factor); },
          from + i * padded);
    }
  }

  // Keys outside, queries inside: dk and dv, and dq too when the whole sequence's fits.
  void keys_first(int64_t length, int64_t block, bool with_dq) {
    for (int64_t k0 = 0; k0 < length; k0 += block) {
      int64_t keys = std::min(block, length - k0);
      pack_keys(k0, keys);
      for (int64_t q0 = k0; q0 < length; q0 += block) {
        int64_t queries = std::min(block, length - q0);
        pack_queries(q0, queries);
        scores(q0, queries, k0, keys);
        add_dkv(q0, queries, k0, keys, q0 == k0);
        if (with_dq) add_dq(q0, queries, k0, keys, dq + q0 * padded);
      }
      store_rows(dk, k0, keys, 1, kLn2);  // the packed q is too large by log2 e
      store_rows(dv, k0, keys, 2, 1.0f);
    }
    if (with_dq) store_rows(dq, 0, length, 0, s.scale);
  }

  // Queries outside: dq of a sequence too long for scratch.
  void queries_first(int64_t length, int64_t block) {
    for (int64_t q0 = 0; q0 < length; q0 += block) {
      int64_t queries = std::min(block, length - q0);
      pack_queries(q0, queries);
      for (int64_t k0 = 0; k0 <= q0; k0 += block) {
        int64_t keys = std::min(block, length - k0);
        pack_keys(k0, keys);
        scores(q0, queries, k0, keys);
        add_dq(q0, queries, k0, keys, dq);
      }
      store_rows(dq, q0, queries, 0, s.scale);
    }
  }

  void run() {
    int64_t length = s.length(sequence), block = s.block();
    bool whole = dq_rows == length;
    keys_first(length, block, whole);
    if (!whole) queries_first(length, block);
  }
};

template <typename T>
void attention_dx_of(const KernelContext& c) {
  HeadsShape s(c.in[1], c.attrs);
  AttentionGradient<T> g{c.in[0].as<T>(), c.in[1].as<T>(), c.in[2].as<T>(), c.in[3].as<float>(),
                         c.out[0].as<T>()};
  for_tasks(c.team, s.sequences * s.heads, [&](int64_t task, int thread) HWY_ATTR {
    GradientBlock<T>(s, g, c.team.scratch(thread), task / s.heads, task % s.heads).run();
  });
}

void attention_dx(const KernelContext& c) {
  by_type(c.in[1].dtype, [&](auto t) { attention_dx_of<decltype(t)>(c); });
}

}  // namespace ds::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ds::cpu {

HWY_EXPORT(attention_dx);

void add_attention_dx(KernelRegistry& registry) {
  KernelFn run = [](const KernelContext& c) { HWY_DYNAMIC_DISPATCH(attention_dx)(c); };
  registry.add({"attention_dx", "cpu", run, refuse_attention});
}

}  // namespace ds::cpu
#endif  // HWY_ONCE
