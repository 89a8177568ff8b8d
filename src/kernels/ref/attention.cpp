#include <algorithm>
#include <cmath>

#include "kernels/ref/ref.h"

namespace ds::ref {
namespace {

// The causal heads of one packed batch. Row r of qkv is q, k, v, each `width` = heads * depth wide; sequence
// s is rows [s * seq, min((s + 1) * seq, rows)).
template <typename T>
struct Heads {
  using A = Wide<T>;
  const T* qkv;
  int64_t rows, width, heads, depth, seq;
  A scale;

  Heads(const TensorView& view, const Attrs& attrs)
      : qkv(view.as<T>()),
        rows(view.dims[0]),
        width(view.dims[1] / 3),
        heads(attrs.integer("heads")),
        depth(width / heads),
        seq(attrs.integer("seq")),
        scale(static_cast<A>(1 / std::sqrt(static_cast<double>(depth)))) {}

  const T* q(int64_t row, int64_t head) const { return qkv + row * 3 * width + head * depth; }
  const T* k(int64_t row, int64_t head) const { return q(row, head) + width; }
  const T* v(int64_t row, int64_t head) const { return q(row, head) + 2 * width; }
  int64_t first_key(int64_t row) const { return row / seq * seq; }
  int64_t end_query(int64_t row) const { return std::min(first_key(row) + seq, rows); }
  A dot(const T* a, const T* b) const {
    A sum = 0;
    for (int64_t d = 0; d < depth; ++d) sum += get(a, d) * get(b, d);
    return sum;
  }
  A score(int64_t query, int64_t key, int64_t head) const {
    return scale * dot(q(query, head), k(key, head));
  }
};

// y[i] = sum over keys j <= i of exp(s_ij - lse_i) v_j, lse_i = log sum exp s_ij
template <typename T>
void attention(const KernelContext& c) {
  Heads<T> a(c.in[0], c.attrs);
  T* y = c.out[0].as<T>();
  Wide<T>* lse = c.out[1].as<Wide<T>>();
  std::span<Wide<T>> p = scratch_of<Wide<T>>(c, a.seq);
  for (int64_t h = 0; h < a.heads; ++h) {
    for (int64_t i = 0; i < a.rows; ++i) {
      int64_t begin = a.first_key(i);
      Wide<T> top = a.score(i, begin, h), sum = 0;
      for (int64_t j = begin; j <= i; ++j) {
        p[j - begin] = a.score(i, j, h);
        top = std::max(top, p[j - begin]);
      }
      for (int64_t j = begin; j <= i; ++j) sum += std::exp(p[j - begin] - top);
      lse[h * a.rows + i] = top + std::log(sum);
      for (int64_t j = begin; j <= i; ++j) p[j - begin] = std::exp(p[j - begin] - lse[h * a.rows + i]);
      for (int64_t d = 0; d < a.depth; ++d) {
        Wide<T> value = 0;
        for (int64_t j = begin; j <= i; ++j) value += p[j - begin] * get(a.v(j, h), d);
        y[i * a.width + h * a.depth + d] = static_cast<T>(value);
      }
    }
  }
}

// With p_ij = exp(s_ij - lse_i) and ds_ij = p_ij (dy_i . v_j - dy_i . y_i):
// dq_i = scale sum_j ds_ij k_j, dk_j = scale sum_i ds_ij q_i, dv_j = sum_i p_ij dy_i
template <typename T>
void attention_dx(const KernelContext& c) {
  Heads<T> a(c.in[1], c.attrs);
  const T *dy = c.in[0].as<T>(), *y = c.in[2].as<T>();
  const Wide<T>* lse = c.in[3].as<Wide<T>>();
  T* dx = c.out[0].as<T>();
  std::span<Wide<T>> sums = scratch_of<Wide<T>>(c, 3 * a.depth);
  Wide<T>*dq = sums.data(), *dk = dq + a.depth, *dv = dk + a.depth;
  auto p = [&](int64_t i, int64_t j, int64_t h) { return std::exp(a.score(i, j, h) - lse[h * a.rows + i]); };
  auto ds = [&](int64_t i, int64_t j, int64_t h) {
    int64_t at = i * a.width + h * a.depth;
    return a.scale * p(i, j, h) * (a.dot(dy + at, a.v(j, h)) - a.dot(dy + at, y + at));
  };
  for (int64_t h = 0; h < a.heads; ++h) {
    for (int64_t r = 0; r < a.rows; ++r) {
      std::fill(sums.begin(), sums.end(), Wide<T>(0));
      for (int64_t j = a.first_key(r); j <= r; ++j) {  // r as a query
        Wide<T> weight = ds(r, j, h);
        for (int64_t d = 0; d < a.depth; ++d) dq[d] += weight * get(a.k(j, h), d);
      }
      for (int64_t i = r; i < a.end_query(r); ++i) {  // r as a key
        Wide<T> weight = ds(i, r, h), probability = p(i, r, h);
        for (int64_t d = 0; d < a.depth; ++d) {
          dk[d] += weight * get(a.q(i, h), d);
          dv[d] += probability * get(dy, i * a.width + h * a.depth + d);
        }
      }
      for (int64_t part = 0; part < 3; ++part) {
        T* out = dx + r * 3 * a.width + part * a.width + h * a.depth;
        for (int64_t d = 0; d < a.depth; ++d) out[d] = static_cast<T>(sums[part * a.depth + d]);
      }
    }
  }
}

}  // namespace

void add_attention(KernelRegistry& registry) {
  add_kernel(registry, "attention", [](const KernelContext& c) {
    by_type(c.in[0].dtype, [&](auto t) { attention<decltype(t)>(c); });
  });
  add_kernel(registry, "attention_dx", [](const KernelContext& c) {
    by_type(c.in[1].dtype, [&](auto t) { attention_dx<decltype(t)>(c); });
  });
}

}  // namespace ds::ref
