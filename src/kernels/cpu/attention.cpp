#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/attention.h"
#include "kernels/cpu/gemm-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ds::cpu::HWY_NAMESPACE {

// One block of queries of one head against the keys before them, one block of keys at a time, with the
// running maximum and sum of Milakov and Gimelshein, "Online normalizer calculation for softmax" (2018).
template <typename T>
struct AttentionBlock {
  HeadsShape s;
  int64_t padded;  // depth, padded to a panel
  float *q, *kt, *v, *scores, *o, *top, *total;

  AttentionBlock(const HeadsShape& shape, std::span<std::byte> scratch) : s(shape) {
    Carver carve(scratch);
    int64_t block = s.block();
    padded = round_up(s.depth, panel());
    q = carve.floats(block * s.depth);
    kt = carve.floats(s.depth * block);
    v = carve.floats(block * padded);
    scores = carve.floats(kStrip * block);
    o = carve.floats(block * padded);
    top = carve.floats(block);
    total = carve.floats(block);
  }

  // Scores of one query, times log2 e, become exp2(score - top) in place; `valid` of them count, the rest up
  // to `end` become 0. Rescales the query's running sum and output.
  HWY_INLINE void softmax(float* row, int64_t valid, int64_t end, int64_t query, bool first) {
    const Lanes d;
    const int64_t step = lanes();
    Vec minus = hn::Set(d, -INFINITY), most = minus;
    int64_t j = 0;
    for (; j + step <= valid; j += step) most = hn::Max(most, load(row + j));
    if (j < valid) {
      auto used = hn::FirstN(d, static_cast<size_t>(valid - j));
      Vec masked = hn::IfThenElse(used, load(row + j), minus);
      store(masked, row + j);
      most = hn::Max(most, masked);
    }
    float before = top[query], now = std::max(before, maximum(most));
    Vec shift = hn::Set(d, now), partial = hn::Zero(d);
    for (j = 0; j < valid; j += step) {
      Vec p = exp2_negative(hn::Sub(load(row + j), shift));
      store(p, row + j);
      partial = hn::Add(partial, p);
    }
    for (; j < end; j += step) store(hn::Zero(d), row + j);
    top[query] = now;
    float added = sum(partial);
    if (first) {
      total[query] = added;
      return;
    }
    float shrink = std::exp2(before - now);
    total[query] = total[query] * shrink + added;
    Vec factor = hn::Set(d, shrink);
    float* out = o + query * padded;
    for (int64_t k = 0; k < padded; k += step) store(hn::Mul(load(out + k), factor), out + k);
  }

  // Queries [q0, q0 + queries) and keys [k0, k0 + keys) of the sequence, packed.
  HWY_INLINE void keys_block(int64_t q0, int64_t queries, int64_t k0, int64_t keys) {
    int64_t width = round_up(keys, panel());
    for (int64_t r = 0; r < queries; r += kStrip) {
      int64_t rows = std::min(kStrip, queries - r), end = std::min(keys, q0 + r + rows - k0);
      gemm(rows, round_up(end, panel()), s.depth, {q + r * s.depth, s.depth, 1}, kt, width, scores, width,
           false);
      for (int64_t i = 0; i < rows; ++i) {
        softmax(scores + i * width, std::min(keys, q0 + r + i + 1 - k0), end, r + i, k0 == 0);
      }
      gemm(rows, padded, end, {scores, width, 1}, v, padded, o + r * padded, padded, k0 > 0);
    }
  }

  void run(const T* qkv, int64_t sequence, int64_t head, int64_t q0, T* y, float* lse) {
    int64_t begin = sequence * s.seq, length = s.length(sequence), stride = 3 * s.width, block = s.block();
    const T* at = qkv + begin * stride + head * s.depth;
    int64_t queries = std::min(block, length - q0);
    std::fill(top, top + queries, -INFINITY);
    pack_rows(at + q0 * stride, stride, queries, s.depth, s.scale * kLog2E, q, s.depth);
    for (int64_t k0 = 0; k0 < q0 + queries; k0 += block) {
      int64_t keys = std::min(block, q0 + queries - k0);
      const T* key = at + k0 * stride + s.width;
      pack_transposed(key, stride, keys, s.depth, kt, round_up(keys, panel()));
      pack_rows(key + s.width, stride, keys, s.depth, 1.0f, v, padded);
      keys_block(q0, queries, k0, keys);
    }
    for (int64_t i = 0; i < queries; ++i) {
      int64_t row = begin + q0 + i;
      Vec factor = hn::Set(Lanes(), 1 / total[i]);
      map(
          0, s.depth, y + row * s.width + head * s.depth,
          [=](Vec value) HWY_ATTR { return hn::Mul(value, factor); },
          static_cast<const float*>(o + i * padded));
      lse[head * s.rows + row] = top[i] * kLn2 + std::log(total[i]);
    }
  }
};

// y[i] = sum over keys j <= i of exp(s_ij - lse_i) v_j, lse_i = log sum exp s_ij
template <typename T>
void attention_of(const KernelContext& c) {
  HeadsShape s(c.in[0], c.attrs);
  const T* qkv = c.in[0].as<T>();
  T* y = c.out[0].as<T>();
  float* lse = c.out[1].as<float>();
  int64_t blocks = ceil_div(s.seq, s.block());
  for_tasks(c.team, s.sequences * s.heads * blocks, [&](int64_t task, int thread) HWY_ATTR {
    // The longest blocks, those with the most keys, start first.
    int64_t q0 = (blocks - 1 - task / (s.sequences * s.heads)) * s.block();
    int64_t sequence = task / s.heads % s.sequences, head = task % s.heads;
    if (q0 >= s.length(sequence)) return;
    AttentionBlock<T>(s, c.team.scratch(thread)).run(qkv, sequence, head, q0, y, lse);
  });
}

void attention(const KernelContext& c) {
  by_type(c.in[0].dtype, [&](auto t) { attention_of<decltype(t)>(c); });
}

}  // namespace ds::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ds::cpu {

HWY_EXPORT(attention);

void add_attention(KernelRegistry& registry) {
  KernelFn run = [](const KernelContext& c) { HWY_DYNAMIC_DISPATCH(attention)(c); };
  registry.add({"attention", "cpu", run, refuse_attention});
}

}  // namespace ds::cpu
#endif  // HWY_ONCE
