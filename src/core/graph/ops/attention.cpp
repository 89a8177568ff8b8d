// Attention within sequences, its gradient, and attention to the cache of a text.
//
// Rows are the tokens of all sequences, packed one after another. Each sequence has `seq` rows or,
// with `documents`, the rows that operand begin says. Queries have H heads. Keys and values have G
// heads, where G divides H, and each of these serves H / G heads of queries. q, k and v are
// separate operands, or columns of one operand, side by side. The second result, lse, is the
// logarithm of the sum of exp(scores) for each head and row: with it the backward part recomputes
// the weights in tiles instead of keeping n seq of them for each head (Dao et al.,
// "FlashAttention", 2022). cached_attention has two more operands: the position of each row in the
// text, and a cache of keys and values.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/graph/ops/rules.h"

namespace ds {
namespace {

using Types = std::vector<TensorType>;
using In = std::span<const TensorType>;

// The form of the operands that all three operations share: qkv or q, k and v, then, except in
// cached_attention, optionally i32[n], which is a mask or, with attribute `documents`, begin.
// `count`, the number of these operands, determines the form.
struct Operands {
  bool packed, masked;

  explicit Operands(size_t count) : packed(count < 3), masked(count % 2 == 0) {}
};

// The number of additional operands of attention_dx: dy, y and lse.
constexpr size_t kAroundDx = 3;
constexpr std::string_view kCached = "cached_attention";

// Returns G. The attributes must have been checked.
int64_t kv_heads(const Attrs& attrs) {
  int64_t groups = attrs.integer_or("kv_heads", 0);
  return groups == 0 ? attrs.integer("heads") : groups;
}

void check_real(std::string_view op, const Attrs& attrs, std::string_view name) {
  double value = attrs.real_or(name, 0);
  require(std::isfinite(value) && value >= 0, "{}: attribute '{}' must be a number >= 0, got {}",
          op, name, value);
}

// Checks the dropout of the weights. An attention with dropout must name its random stream.
void check_dropout(const OperandCheck& check, std::string_view op, const Attrs& attrs) {
  double share = attrs.real_or("dropout", 0);
  require(share >= 0 && share < 1, "{}: attribute 'dropout' must be in [0, 1), got {}", op, share);
  require(share == 0 || attrs.has("op"), "{}: attribute 'op' must be given when 'dropout' is {}",
          op, share);
  check.within(attrs, "op", 0, 65535, 0);
}

// Checks all attributes. `packed` says whether q, k and v are one operand, as per_head requires.
void check_attributes(const OperandCheck& check, std::string_view op, const Attrs& attrs,
                      bool packed) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  int64_t heads = check.positive(attrs, "heads");
  if (op != kCached) check.positive(attrs, "seq");
  check.within(attrs, "kv_heads", 0, heads, 0);
  int64_t groups = kv_heads(attrs);
  require(heads % groups == 0, "{}: attribute 'kv_heads' must divide heads = {}, got {}", op, heads,
          groups);
  bool causal = attrs.integer_or("causal", 1) != 0;
  int64_t window = check.within(attrs, "window", 0, kMost, 0);
  require(causal || window == 0, "{}: attribute 'window' must be 0 when 'causal' is 0, got {}", op,
          window);
  check_real(op, attrs, "scale");
  check_real(op, attrs, "softcap");
  check_dropout(check, op, attrs);
  // per_head interleaves q, k and v of each head (as in GPT-NeoX), so every head must have its own
  // k and v.
  if (attrs.integer_or("per_head", 0) == 0) return;
  require(packed, "{}: attribute 'per_head' must be 0 when q, k and v are separate, got 1", op);
  require(groups == heads,
          "{}: attribute 'kv_heads' must be heads = {} when 'per_head' is 1, got {}", op, heads,
          groups);
}

// Checks the operands from `first` to the mask and returns the type of y.
TensorType check_inputs(const OperandCheck& check, std::string_view op, In in, const Attrs& attrs,
                        size_t first, const Operands& kind) {
  check.matrix(first);
  check_attributes(check, op, attrs, kind.packed);
  int64_t heads = attrs.integer("heads"), groups = kv_heads(attrs);
  int64_t columns = in[first].shape[1].extent, unit = kind.packed ? heads + 2 * groups : heads;
  std::string_view formula = !kind.packed      ? "heads"
                             : groups == heads ? "3*heads"
                                               : "heads+2*kv_heads";
  require(columns % unit == 0, "{}: operand '{}' must have a multiple of {} = {} columns, got {}",
          op, kind.packed ? "qkv" : "q", formula, unit, in[first].text());
  int64_t depth = columns / unit;
  DType dtype = in[first].dtype;
  Dim rows = in[first].shape[0];
  if (!kind.packed) {
    check.equal(first + 1, {dtype, {rows, groups * depth}});
    check.equal(first + 2, {dtype, {rows, groups * depth}});
  }
  if (kind.masked) check.equal(first + (kind.packed ? 1 : 3), {DS_DTYPE_I32, {rows}});
  if (attrs.integer_or("documents", 0) == 0) return {dtype, {rows, heads * depth}};
  require(
      kind.masked,
      "{}: when attribute 'documents' is 1, operand 'mask' must be given and hold the first row "
      "of each row's document, got none",
      op);
  require(attrs.integer_or("causal", 1) != 0,
          "{}: attribute 'causal' must be 1 when 'documents' is 1, got 0", op);
  return {dtype, {rows, heads * depth}};
}

// Returns the type of lse, the logarithm of the sum of exp(scores): one number for each head and
// row.
TensorType lse_type(const TensorType& y, const Attrs& attrs) {
  return {wide_type(y.dtype), {attrs.integer("heads"), y.shape[0]}};
}

// Returns the types of y and lse.
Types infer_attention(In in, const Attrs& attrs) {
  Operands kind(in.size());
  OperandCheck check("attention", in);
  TensorType y = check_inputs(check, "attention", in, attrs, 0, kind);
  return {y, lse_type(y, attrs)};
}

Types infer_attention_dx(In in, const Attrs& attrs) {
  Operands kind(in.size() - kAroundDx);
  OperandCheck check("attention_dx", in);
  TensorType y = check_inputs(check, "attention_dx", in, attrs, 1, kind);
  check.equal(0, y);
  check.equal(in.size() - 2, y);
  check.equal(in.size() - 1, lse_type(y, attrs));
  return kind.packed ? Types{in[1]} : Types{in[1], in[2], in[3]};
}

// Returns the types of y and the cache. Operands: qkv, or q, k and v; positions; cache.
Types infer_cached_attention(In in, const Attrs& attrs) {
  Operands kind(in.size() - 2);
  OperandCheck check(kCached, in);
  TensorType y = check_inputs(check, kCached, in, attrs, 0, kind);
  check.equal(in.size() - 2, {DS_DTYPE_I32, {y.shape[0]}});
  const TensorType& cache = in.back();
  check.constant(in.size() - 1);
  require(cache.shape.rank() == 3, "{}: operand 'cache' must have 3 dimensions, got {}", kCached,
          cache.text());
  int64_t depth = y.shape[1].extent / attrs.integer("heads");
  check.equal(in.size() - 1, {y.dtype, {2 * kv_heads(attrs), cache.shape[1], depth}});
  return {y, cache};
}

// Masks and begin are integers and get no gradient.
std::vector<ValueId> attention_backward(BackwardContext& c) {
  std::vector<ValueId> in{c.first_grad()}, grads(c.node.in.size());
  in.insert(in.end(), c.node.in.begin(), c.node.in.end());
  in.insert(in.end(), c.node.out.begin(), c.node.out.end());
  if (Operands(c.node.in.size()).packed) {
    grads[0] = c.emit("attention_dx", in, c.node.attrs, {0});
    return grads;
  }
  ValueId first = c.emit("attention_dx", in, c.node.attrs, {0, 1, 2});
  for (int i = 0; first.exists() && i < 3; ++i) grads[i] = first + i;
  return grads;
}

// Returns the number of keys that a row sees on average in a sequence of `seq` rows. With a window
// w, the first w rows see 1 to w keys, and all later rows see w. Masks are ignored.
double mean_keys(double seq, const Attrs& attrs) {
  if (attrs.integer_or("causal", 1) == 0) return seq;
  double window = static_cast<double>(attrs.integer_or("window", 0));
  if (window == 0 || window >= seq) return (seq + 1) / 2;
  return window * (2 * seq - window + 1) / (2 * seq);
}

double product_flops(int64_t products, const TensorType& y, const Attrs& attrs, int64_t n) {
  double rows = static_cast<double>(y.shape[0].symbolic ? n : y.shape[0].extent);
  double keys = mean_keys(static_cast<double>(attrs.integer("seq")), attrs);
  return 2.0 * static_cast<double>(products) * rows * keys * static_cast<double>(y.shape[1].extent);
}

// Returns operand begin, which is the last operand of an attention with `documents`.
std::optional<DocumentsOperand> attention_documents(size_t operands, const Attrs& attrs) {
  if (attrs.integer_or("documents", 0) == 0) return {};
  return DocumentsOperand{operands - 1, attrs.integer("seq")};
}

// Counts the products q k^T and p v.
double attention_flops(In in, const Attrs& attrs, int64_t n) {
  return product_flops(2, infer_attention(in, attrs)[0], attrs, n);
}
// Counts the same products for a cache that is half full.
double cached_attention_flops(In in, const Attrs& attrs, int64_t n) {
  const TensorType y = infer_cached_attention(in, attrs)[0];
  double rows = static_cast<double>(y.shape[0].symbolic ? n : y.shape[0].extent);
  double keys = mean_keys(static_cast<double>(in.back().shape[1].extent), attrs);
  return 4.0 * rows * keys * static_cast<double>(y.shape[1].extent);
}
// Counts the products of the backward part: the scores q k^T, dy v^T, dq, dk and dv.
double attention_dx_flops(In in, const Attrs& attrs, int64_t n) {
  return product_flops(5, in[0], attrs, n);
}

// Returns the attributes of an attention without those that cached_attention does not have.
Attrs cached_attrs(const Attrs& attrs) {
  Attrs out;
  for (const auto& [key, value] : attrs.items()) {
    bool of_sequences = key == "seq" || key == "causal" || key == "documents";
    if (!of_sequences && key != "dropout" && key != "op") out.set(key, value);
  }
  return out;
}

// Returns the number of operands without the mask or begin.
size_t decode_attention_inputs(const Node& node) {
  return node.in.size() - (Operands(node.in.size()).masked ? 1 : 0);
}

// Appends a cached_attention. The cache becomes an input of the graph and lives as long as the
// text. The result is that of the attention only if rows never see later rows.
ValueId decode_attention(DecodeContext& c) {
  const std::string& y = c.name();
  const Attrs& attrs = c.node.attrs;
  if (attrs.integer_or("causal", 1) == 0) {
    raise(DS_ERROR_UNSUPPORTED,
          "text cannot be continued with attention %{}: rows see later rows (causal 0)", y);
  }
  // A mask that is an input marks padding, which a continued text does not have.
  const Value& mask = c.from.values[c.node.in.back()];
  if (Operands(c.node.in.size()).masked && mask.producer.exists()) {
    raise(DS_ERROR_UNSUPPORTED, "text cannot be continued with attention %{}: mask %{} is computed",
          y, mask.name);
  }
  const TensorType& type = c.from.type(c.node.out[0]);
  int64_t depth = type.shape[1].extent / attrs.integer("heads");
  std::vector<ValueId> in = c.in;
  in.push_back(c.places);
  in.push_back(
      c.graph.add_input(y + ".cache", {type.dtype, {2 * kv_heads(attrs), c.positions, depth}}));
  return c.graph.add(kCached, in, cached_attrs(attrs), y);
}

using OperandDefs = std::vector<OperandDef>;

// Returns the two forms of an operation, whose operands are `before`, then q, k and v as three
// operands or side by side in one, then `after`.
std::vector<OpForm> forms_of(const OperandDefs& before, const OperandDefs& after,
                             const OperandDefs& results, const OperandDefs& packed_results) {
  auto around = [&](OperandDefs between) {
    between.insert(between.begin(), before.begin(), before.end());
    between.insert(between.end(), after.begin(), after.end());
    return between;
  };
  return {{"",
           around({{"q", "T[n,HD]", "queries of H heads"},
                   {"k", "T[n,GD]", "keys of G heads"},
                   {"v", "T[n,GD]", "values of G heads"}}),
           results},
          {"packed", around({{"qkv", "T[n,(H+2G)D]", "queries, keys and values, side by side"}}),
           packed_results}};
}

AttrDef number(const char* name, const char* doc) {
  return optional({name, AttrKind::number, doc}, 0.0);
}

}  // namespace

void add_attention_ops(std::vector<OpDef>& table) {
  const AttrDef heads{"heads", AttrKind::integer, "H, heads of queries"},
      seq{"seq", AttrKind::integer, "rows of a sequence"},
      kv_heads = optional({"kv_heads", AttrKind::integer,
                           "G, heads of keys and values, a divisor of H; 0: H heads"},
                          int64_t{0}),
      causal = optional({"causal", AttrKind::flag,
                         "1: a row sees itself and rows before it, 0: its whole sequence"},
                        int64_t{1}),
      window = optional(
          {"window", AttrKind::integer,
           "number of rows that a row sees, itself included; 0: all; only for causal attention"},
          int64_t{0}),
      per_head = optional(
          {"per_head", AttrKind::flag, "1: qkv is q, k, v of head 0, then of head 1 and so on"},
          int64_t{0}),
      scale = number("scale", "factor of scores; 0: 1/sqrt(D)"),
      softcap = number("softcap", "bound of scores; 0: none");
  const std::vector<AttrDef> attrs{
      heads,
      seq,
      kv_heads,
      causal,
      window,
      scale,
      softcap,
      per_head,
      number("dropout", "probability of dropping a weight in a training step, in [0, 1)"),
      optional({"op", AttrKind::integer,
                "number of the random stream of dropout, 0 to 65535; needed with dropout"}),
      optional(
          {"documents", AttrKind::flag,
           "1: mask is begin, which holds for each row the first row of its document. Documents "
           "follow one another, each at most seq rows long; a row sees only its own document"},
          int64_t{0})};
  const OperandDef mask = optional(OperandDef{
                       "mask", "i32[n]",
                       "rows where it is 0 are seen by no row; with documents it is begin"}),
                   y{"y", "T[n,HD]", "weighted sums of values"},
                   lse{"lse", "A[H,n]", "logarithm of the sum of exp of the scores"};
  table.push_back({.name = "attention",
                   .doc = "Attention within sequences: softmax(scores) v for each row and head.",
                   .forms = forms_of({}, {mask}, {y, lse}, {y, lse}),
                   .attrs = attrs,
                   .infer = infer_attention,
                   .backward = attention_backward,
                   .flops = attention_flops,
                   .products = true,
                   .documents = attention_documents,
                   .decode = decode_attention,
                   .decode_inputs = decode_attention_inputs});
  table.push_back({.name = "attention_dx",
                   .doc = "The gradients of an attention.",
                   .forms = forms_of({{"dy", "T[n,HD]", "gradient of y"}}, {mask, y, lse},
                                     {{"dq", "T[n,HD]", "gradient of q"},
                                      {"dk", "T[n,GD]", "gradient of k"},
                                      {"dv", "T[n,GD]", "gradient of v"}},
                                     {{"dqkv", "T[n,(H+2G)D]", "gradient of qkv"}}),
                   .attrs = attrs,
                   .infer = infer_attention_dx,
                   .flops = attention_dx_flops,
                   .products = true});
  const OperandDef cache{"cache", "T[2G,P,D]", "keys, then values, of the P positions of a text"};
  table.push_back(
      {.name = std::string(kCached),
       .doc = "Causal attention of some rows of a text to all rows so far: writes their keys and "
              "values to the cache, then reads the cache.",
       .forms = forms_of(
           {},
           {{"positions", "i32[n]", "position of each row in the text, below P; all are different"},
            cache},
           {y, cache}, {y, cache}),
       .attrs = {heads, kv_heads, window, scale, softcap, per_head},
       .infer = infer_cached_attention,
       .flops = cached_attention_flops,
       .products = true,
       .updates_last = true});
}

}  // namespace ds
