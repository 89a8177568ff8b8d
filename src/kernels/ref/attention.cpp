// Attention (Vaswani et al., "Attention Is All You Need", arXiv:1706.03762) with grouped heads,
// windows, documents, masks, a soft cap and dropout. The forward pass stores lse, the logarithm of
// each row's sum of exponentials, from which the backward pass recomputes the weights.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "kernels/formulas/attention_dropout.h"
#include "kernels/formulas/attention_shape.h"
#include "kernels/ref/ref.h"

namespace ds::ref {
namespace {

// The heads of one tensor, which is q, k, v, y or one of their gradients: head h of row r begins at
// data + r * row + h * head.
template <typename T>
struct Part {
  T* data;
  int64_t row, head;
  T* at(int64_t r, int64_t h) const { return data + r * row + h * head; }
};

// The operands of attention for one batch. Sequence s is rows [s * seq, min((s + 1) * seq, rows)).
// With documents, the sequence of a row begins at documents[row]. Query head h reads key and value
// head h / group.
template <typename T>
struct Heads : AttentionShape {
  using A = Wide<T>;
  // The scale and the soft cap, in the type of the arithmetic.
  A factor, limit;
  Part<const T> q, k, v;
  AttentionDropout dropout;

  Heads(const KernelContext& c, std::span<const TensorView> in)
      : AttentionShape(in, c.attrs),
        factor(static_cast<A>(scale)),
        limit(static_cast<A>(cap)),
        q(part<const T>(in, 0)),
        k(part<const T>(in, 1)),
        v(part<const T>(in, 2)),
        dropout(c) {}

  // Returns q (which = 0), k (1) or v (2) from the operands, or its gradient from the gradients.
  template <typename U>
  Part<U> part(std::span<const TensorView> views, size_t which) const {
    const HeadPlace place = part_place(which);
    return {views[place.operand].as<T>() + place.start, place.row, place.head};
  }

  // The sequence of a row is within rows [begin(row), end(row)). A document is never longer than
  // seq; if it is shorter, the range goes past its end, and sees() excludes the rest.
  int64_t begin(int64_t row) const {
    if (!documents) return row / seq * seq;
    return std::clamp<int64_t>(documents[row], std::max<int64_t>(0, row - seq + 1), row);
  }
  int64_t end(int64_t row) const { return std::min(begin(row) + seq, rows); }
  // Returns whether a query sees a key: the key is in the query's sequence, not after the query if
  // causal, within the window, and not masked.
  bool sees(int64_t query, int64_t key) const {
    return begin(query) == begin(key) && (!causal || key <= query) &&
           (window == 0 || key > query - window) && (!mask || mask[key] != 0);
  }
  // Returns whether a query sees exactly one key, whose weight is then 1.
  bool sees_one(int64_t query) const {
    int64_t count = 0;
    for (int64_t key = begin(query); key < end(query); ++key) count += sees(query, key);
    return count == 1;
  }
  // Returns the factor that dropout applies to the weight of a key.
  A kept(int64_t query, int64_t key, int64_t head) const {
    if (!dropout.on()) return 1;
    int64_t word = dropout.first_word(query, head) + key - begin(query);
    std::array<uint32_t, 4> words = dropout.stream.block(static_cast<uint64_t>(word / 4));
    return uniform01(words[static_cast<size_t>(word % 4)]) >= dropout.share
               ? static_cast<A>(dropout.factor)
               : A(0);
  }
  // Returns the dot product of two heads, summed in the order of columns.
  A dot(const T* a, const T* b) const {
    A sum = 0;
    for (int64_t d = 0; d < depth; ++d) sum += get(a, d) * get(b, d);
    return sum;
  }
  // Returns s_ij, the scaled product of q_i and k_j, bounded by the soft cap.
  A score(int64_t query, int64_t key, int64_t head) const {
    A s = factor * dot(q.at(query, head), k.at(key, head / group));
    return limit == 0 ? s : limit * std::tanh(s / limit);
  }
};

// y[i] = sum over keys j that i sees of m_ij exp(s_ij - lse_i) v_j, where lse_i = log sum exp s_ij.
// y[i] and lse_i are 0 if i sees no key. s_ij = scale q_i . k_j or, with a soft cap, cap tanh(scale
// q_i . k_j / cap). m_ij is the factor of dropout, or 1.
template <typename T>
void attention(const KernelContext& c) {
  using A = Wide<T>;
  Heads<T> a(c, c.in);
  T* y = c.out[0].as<T>();
  std::span<A> p = scratch_of<A>(c, std::min(a.seq, a.rows));
  for (int64_t h = 0; h < a.heads; ++h) {
    for (int64_t i = 0; i < a.rows; ++i) {
      int64_t begin = a.begin(i), end = a.end(i);
      A top = -std::numeric_limits<A>::infinity(), sum = 0;
      for (int64_t j = begin; j < end; ++j) {
        p[j - begin] = a.sees(i, j) ? a.score(i, j, h) : -std::numeric_limits<A>::infinity();
        top = std::max(top, p[j - begin]);
      }
      for (int64_t j = begin; j < end; ++j) sum += a.sees(i, j) ? std::exp(p[j - begin] - top) : 0;
      A lse = sum == 0 ? 0 : top + std::log(sum);
      c.out[1].as<A>()[h * a.rows + i] = lse;
      for (int64_t j = begin; j < end; ++j) {
        p[j - begin] = a.sees(i, j) ? std::exp(p[j - begin] - lse) * a.kept(i, j, h) : 0;
      }
      for (int64_t d = 0; d < a.depth; ++d) {
        A value = 0;
        for (int64_t j = begin; j < end; ++j) {
          if (a.sees(i, j)) value += p[j - begin] * get(a.v.at(j, h / a.group), d);
        }
        y[(i * a.heads + h) * a.depth + d] = static_cast<T>(value);
      }
    }
  }
}

// The weights p_ij = exp(s_ij - lse_i), and ds_ij, the gradients with respect to q_i . k_j. Both
// are 0 if i does not see j.
//   ds_ij = scale p_ij (m_ij dy_i . v_j - dy_i . y_i) (1 - (s_ij / cap)^2)
// If i sees one key, lse_i = s_ij and y_i = v_j to the bit, so p_ij is 1 and ds_ij is 0. With
// dropout, y_i is the rounded product m_ij v_j, so ds_ij is set to 0 explicitly.
template <typename T>
struct Gradient {
  using A = Wide<T>;
  Heads<T> a;
  Part<const T> dy, y;
  const A* lse;

  A p(int64_t i, int64_t j, int64_t h) const {
    return a.sees(i, j) ? std::exp(a.score(i, j, h) - lse[h * a.rows + i]) : 0;
  }
  A ds(int64_t i, int64_t j, int64_t h) const {
    if (!a.sees(i, j) || (a.dropout.on() && a.sees_one(i))) return 0;
    A slope = 1;
    if (a.limit != 0) {
      A bent = a.score(i, j, h) / a.limit;
      slope = 1 - bent * bent;
    }
    A product = a.kept(i, j, h) * a.dot(dy.at(i, h), a.v.at(j, h / a.group)) -
                a.dot(dy.at(i, h), y.at(i, h));
    return a.factor * p(i, j, h) * product * slope;
  }
};

// Rounds the sums and stores them as one head of a row of the output.
template <typename T>
void store_row(std::span<const Wide<T>> sums, T* out) {
  for (size_t d = 0; d < sums.size(); ++d) out[d] = static_cast<T>(sums[d]);
}

// dq_i = sum_j ds_ij k_j, dk_j = sum_i ds_ij q_i, dv_j = sum_i m_ij p_ij dy_i. The sums for a key
// also run over the query heads that read it.
template <typename T>
void attention_dx(const KernelContext& c) {
  using A = Wide<T>;
  std::span<const TensorView> y = c.in.last(2);
  Heads<T> a(c, c.in.subspan(1, c.in.size() - 3));
  int64_t width = a.heads * a.depth;
  Gradient<T> g{a, {c.in[0].as<T>(), width, a.depth}, {y[0].as<T>(), width, a.depth}, y[1].as<A>()};
  Part<T> dq = a.template part<T>(c.out, 0), dk = a.template part<T>(c.out, 1),
          dv = a.template part<T>(c.out, 2);
  std::span<A> sums = scratch_of<A>(c, 2 * a.depth), low = sums.first(a.depth),
               high = sums.last(a.depth);
  // First compute dq, one query and head at a time.
  for (int64_t i = 0; i < a.rows; ++i) {
    for (int64_t h = 0; h < a.heads; ++h) {
      std::fill(low.begin(), low.end(), A(0));
      for (int64_t j = a.begin(i); j < a.end(i); ++j) {
        A weight = g.ds(i, j, h);
        for (int64_t d = 0; d < a.depth; ++d) low[d] += weight * get(a.k.at(j, h / a.group), d);
      }
      store_row<T>(low, dq.at(i, h));
    }
  }
  // Then compute dk and dv, one key and key head at a time.
  for (int64_t j = 0; j < a.rows; ++j) {
    for (int64_t kv = 0; kv < a.groups; ++kv) {
      std::fill(sums.begin(), sums.end(), A(0));
      for (int64_t h = kv * a.group; h < (kv + 1) * a.group; ++h) {
        for (int64_t i = a.begin(j); i < a.end(j); ++i) {
          A weight = g.ds(i, j, h), probability = g.p(i, j, h) * a.kept(i, j, h);
          for (int64_t d = 0; d < a.depth; ++d) {
            low[d] += weight * get(a.q.at(i, h), d);
            high[d] += probability * get(g.dy.at(i, h), d);
          }
        }
      }
      store_row<T>(low, dk.at(j, kv));
      store_row<T>(high, dv.at(j, kv));
    }
  }
}

}  // namespace

void add_attention(KernelRegistry& registry) {
  add_by_type(registry, "attention", []<typename T>() { return attention<T>; });
  add_by_type<in_type<1>>(registry, "attention_dx", []<typename T>() { return attention_dx<T>; });
}

}  // namespace ds::ref
