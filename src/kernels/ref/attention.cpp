#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>

#include "kernels/attention_dropout.h"
#include "kernels/ref/ref.h"

namespace ds::ref {
namespace {

// Head h of row r of an operand or a gradient starts at data + r * row + h * head.
template <typename T>
struct Part {
  T* data;
  int64_t row, head;
  T* at(int64_t r, int64_t h) const { return data + r * row + h * head; }
};

// The heads of one batch. Sequence s is rows [s * seq, min((s + 1) * seq, rows)); with documents, a
// row's begins at `first` of it. Query head h reads key and value head h / group.
template <typename T>
struct Heads {
  using A = Wide<T>;
  int64_t rows, heads, groups, group, depth, seq, window;
  bool packed, causal, per_head;
  A scale, cap;
  Part<const T> q, k, v;
  const int32_t* mask;   // null: every key counts
  const int32_t* first;  // null: no documents
  AttentionDropout dropout;

  // `in` is qkv or q, k, v, then perhaps a mask or, with documents, their first rows.
  Heads(const KernelContext& c, std::span<const TensorView> in, const Attrs& attrs)
      : rows(in[0].dims[0]),
        heads(attrs.integer("heads")),
        groups(attrs.integer_or("kv_heads", 0) == 0 ? heads : attrs.integer("kv_heads")),
        group(heads / groups),
        seq(attrs.integer("seq")),
        window(attrs.integer_or("window", 0)),
        packed(in.size() < 3),
        causal(attrs.integer_or("causal", 1) != 0),
        per_head(attrs.integer_or("per_head", 0) != 0),
        cap(static_cast<A>(attrs.real_or("softcap", 0))),
        mask(in.size() % 2 == 0 ? in.back().as<int32_t>() : nullptr),
        first(nullptr),
        dropout(c) {
    if (attrs.integer_or("documents", 0) != 0) std::swap(mask, first);
    depth = in[0].dims[1] / (packed ? heads + 2 * groups : heads);
    double factor = attrs.real_or("scale", 0);
    scale = static_cast<A>(factor == 0 ? 1 / std::sqrt(static_cast<double>(depth)) : factor);
    const T *second = packed ? nullptr : in[1].as<T>(), *third = packed ? nullptr : in[2].as<T>();
    q = part<const T>(in[0].as<T>(), second, third, 0);
    k = part<const T>(in[0].as<T>(), second, third, 1);
    v = part<const T>(in[0].as<T>(), second, third, 2);
  }

  // Part 0 (q), 1 (k) or 2 (v) of one packed array (a) or of three, laid out as the operands are.
  template <typename U>
  Part<U> part(U* a, U* b, U* c, int64_t which) const {
    if (per_head) return {a + which * depth, 3 * heads * depth, 3 * depth};
    int64_t keys = groups * depth, queries = heads * depth;
    if (packed)
      return {a + (which == 0 ? 0 : queries + (which - 1) * keys), queries + 2 * keys, depth};
    return which == 0 ? Part<U>{a, queries, depth} : Part<U>{which == 1 ? b : c, keys, depth};
  }

  int64_t begin(int64_t row) const {
    if (!first) return row / seq * seq;
    return std::clamp<int64_t>(first[row], std::max<int64_t>(0, row - seq + 1), row);
  }
  int64_t end(int64_t row) const { return std::min(begin(row) + seq, rows); }
  bool sees(int64_t query, int64_t key) const {
    return begin(query) == begin(key) && (!causal || key <= query) &&
           (window == 0 || key > query - window) && (!mask || mask[key] != 0);
  }
  bool sees_one(int64_t query) const {
    int64_t count = 0;
    for (int64_t key = begin(query); key < end(query); ++key) count += sees(query, key);
    return count == 1;
  }
  // What dropout multiplies the weight of a key by.
  A kept(int64_t query, int64_t key, int64_t head) const {
    if (!dropout.on()) return 1;
    int64_t word = dropout.first_word(query, head) + key - begin(query);
    std::array<uint32_t, 4> words = dropout.stream.block(static_cast<uint64_t>(word / 4));
    return uniform01(words[static_cast<size_t>(word % 4)]) >= dropout.share
               ? static_cast<A>(dropout.factor)
               : A(0);
  }
  A dot(const T* a, const T* b) const {
    A sum = 0;
    for (int64_t d = 0; d < depth; ++d) sum += get(a, d) * get(b, d);
    return sum;
  }
  A score(int64_t query, int64_t key, int64_t head) const {
    A s = scale * dot(q.at(query, head), k.at(key, head / group));
    return cap == 0 ? s : cap * std::tanh(s / cap);
  }
};

// y[i] = sum over keys j that i sees of m_ij exp(s_ij - lse_i) v_j, lse_i = log sum exp s_ij; 0 and
// 0 when there are none. s_ij = scale q_i . k_j, then cap tanh(s_ij / cap). m_ij is 1, or what
// dropout says.
template <typename T>
void attention(const KernelContext& c) {
  using A = Wide<T>;
  Heads<T> a(c, c.in, c.attrs);
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

// p_ij and the gradient of q_i . k_j, both 0 where i does not see j. With p_ij = exp(s_ij - lse_i):
// ds_ij = scale p_ij (m_ij dy_i . v_j - dy_i . y_i) (1 - (s_ij / cap)^2)
// Where i sees one key, lse_i = s_ij and y_i = v_j to the bit, so p_ij is 1 and ds_ij is 0. Dropout
// rounds y_i: there ds_ij is 0 because it is said.
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
    if (a.cap != 0) {
      A bent = a.score(i, j, h) / a.cap;
      slope = 1 - bent * bent;
    }
    A product = a.kept(i, j, h) * a.dot(dy.at(i, h), a.v.at(j, h / a.group)) -
                a.dot(dy.at(i, h), y.at(i, h));
    return a.scale * p(i, j, h) * product * slope;
  }
};

template <typename T>
void store_row(std::span<const Wide<T>> sums, T* out) {
  for (size_t d = 0; d < sums.size(); ++d) out[d] = static_cast<T>(sums[d]);
}

// dq_i = sum_j ds_ij k_j, dk_j = sum_i ds_ij q_i, dv_j = sum_i m_ij p_ij dy_i; keys sum over their
// query heads too.
template <typename T>
void attention_dx(const KernelContext& c) {
  using A = Wide<T>;
  std::span<const TensorView> y = c.in.last(2);
  Heads<T> a(c, c.in.subspan(1, c.in.size() - 3), c.attrs);
  int64_t width = a.heads * a.depth;
  Gradient<T> g{a, {c.in[0].as<T>(), width, a.depth}, {y[0].as<T>(), width, a.depth}, y[1].as<A>()};
  T *first = c.out[0].as<T>(), *second = a.packed ? nullptr : c.out[1].as<T>(),
    *third = a.packed ? nullptr : c.out[2].as<T>();
  Part<T> dq = a.part(first, second, third, 0), dk = a.part(first, second, third, 1),
          dv = a.part(first, second, third, 2);
  std::span<A> sums = scratch_of<A>(c, 2 * a.depth), low = sums.first(a.depth),
               high = sums.last(a.depth);
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
  add_kernel(registry, "attention", [](const KernelContext& c) {
    by_type(c.in[0].dtype, [&](auto t) { attention<decltype(t)>(c); });
  });
  add_kernel(registry, "attention_dx", [](const KernelContext& c) {
    by_type(c.in[1].dtype, [&](auto t) { attention_dx<decltype(t)>(c); });
  });
}

}  // namespace ds::ref
