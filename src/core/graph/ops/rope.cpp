// Rotary positions (Su et al., "RoFormer", 2021). Pair i of the columns of a head is rotated by the
// angle p theta^(-2i/dims), where p is the position of the row. `scaling` changes the angles for
// texts longer than in pretraining: linear, dynamic (NTK), llama3, yarn and longrope, as
// Transformers computes them. `period` and `rotated` choose the heads that are rotated, so that one
// operation rotates q and k in a matrix that holds q, k and v side by side.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/graph/ops/rope_factors.h"
#include "core/graph/ops/rope_length.h"
#include "core/graph/ops/rules.h"

namespace ds {
namespace {

using Types = std::vector<TensorType>;
using In = std::span<const TensorType>;

void check_positive(const Attrs& attrs, std::string_view name) {
  require(attrs.real(name) > 0, "rope: attribute '{}' must be > 0, got {}", name, attrs.real(name));
}

// Checks a list of factors, one for each rotated pair of columns.
void check_factors(const Attrs& attrs, std::string_view name, int64_t pairs) {
  std::array<double, kMostRopeFactors> factors;
  int64_t count = read_rope_factors(attrs, name, factors);
  require(count == pairs && pairs <= kMostRopeFactors,
          "rope: attribute '{}' must hold dims/2 = {} numbers, at most {}, got {}", name, pairs,
          kMostRopeFactors, count);
  for (int64_t i = 0; i < count; ++i) {
    double factor = factors[static_cast<size_t>(i)];
    require(factor > 0 && std::isfinite(factor), "rope: attribute '{}' must be > 0, got {}", name,
            factor);
  }
}

// Checks the attributes of "longrope". Without long_factors, texts of every length use `factors`,
// and `original` has no meaning.
void check_longrope(const OperandCheck& check, const Attrs& attrs, int64_t pairs) {
  check_factors(attrs, "factors", pairs);
  if (!attrs.has("long_factors")) return;
  check_factors(attrs, "long_factors", pairs);
  check.positive(attrs, "original");
}

// Checks the attributes of the scaling. Each scaling has its own attributes, which
// docs/reference/ops.md lists.
void check_scaling(const OperandCheck& check, const Attrs& attrs, int64_t pairs) {
  std::string_view scaling = attrs.text_or("scaling", "none");
  double magnitude = attrs.real_or("magnitude", 0);
  require(magnitude >= 0, "rope: attribute 'magnitude' must be >= 0, got {}", magnitude);
  if (scaling == "none") return;
  if (scaling == "longrope") return check_longrope(check, attrs, pairs);
  check_positive(attrs, "factor");
  if (scaling == "linear") return;
  check.positive(attrs, "original");
  if (scaling == "dynamic") {
    require(std::isfinite(attrs.real("power")), "rope: attribute 'power' must be finite, got {}",
            attrs.real("power"));
    return;
  }
  check_positive(attrs, "low");
  if (scaling == "yarn") return check_positive(attrs, "high");
  double low = attrs.real("low"), high = attrs.real("high");
  require(high > low, "rope: attribute 'high' must be greater than 'low' {}, got {}", low, high);
}

Types infer_rope(In in, const Attrs& attrs) {
  OperandCheck check("rope", in);
  check.matrix(0);
  if (in.size() >= 2) check.equal(1, {DS_DTYPE_I32, {in[0].shape[0]}});
  if (in.size() == 3) check.equal(2, {DS_DTYPE_I32, {1}});
  int64_t heads = check.positive(attrs, "heads");
  check.positive(attrs, "seq");
  require(attrs.real("theta") > 1, "rope: attribute 'theta' must be > 1, got {}",
          attrs.real("theta"));
  int64_t columns = in[0].shape[1].extent;
  // True if all columns of a head are rotated.
  bool whole = attrs.integer_or("dims", 0) == 0;
  int64_t unit = whole ? 2 * heads : heads;
  require(columns % unit == 0, "rope: operand 'x' must have a multiple of {} = {} columns, got {}",
          whole ? "2*heads" : "heads", unit, in[0].text());
  int64_t dims = check.within(attrs, "dims", 0, columns / heads, 0);
  require(dims % 2 == 0, "rope: attribute 'dims' must be even, got {}", dims);
  int64_t period = check.within(attrs, "period", 1, heads, heads);
  check.within(attrs, "rotated", 1, period, period);
  check_scaling(check, attrs, (dims == 0 ? columns / heads : dims) / 2);
  return {in[0]};
}

// Appends a rope of dy by the opposite angles, which is the adjoint of the rotation.
std::vector<ValueId> rope_backward(BackwardContext& c) {
  Attrs attrs;
  for (const auto& [name, value] : c.node.attrs.items()) {
    if (name != "inverse") attrs.set(name, value);
  }
  if (c.node.attrs.integer_or("inverse", 0) == 0) attrs.set("inverse", int64_t{1});
  std::vector<ValueId> in = c.node.in, grads(in.size());
  in[0] = c.first_grad();
  grads[0] = c.emit("rope", in, attrs, {0});
  return grads;
}

// A rotated pair costs four products and two sums, which is 3 operations per column.
double rope_flops(In in, const Attrs& attrs, int64_t n) {
  int64_t heads = attrs.integer("heads"), depth = in[0].shape[1].extent / heads;
  int64_t dims = attrs.integer_or("dims", 0), period = attrs.integer_or("period", heads);
  int64_t rotated = attrs.integer_or("rotated", period);
  // A head is rotated if its index modulo `period` is below `rotated`; the last period may be
  // incomplete.
  int64_t turning = heads / period * rotated + std::min(heads % period, rotated);
  double rows = static_cast<double>(in[0].shape.numel(n)) / static_cast<double>(heads * depth);
  return 3.0 * rows * static_cast<double>(turning * (dims == 0 ? depth : dims));
}

// Rows are rotated by their positions in the text. A scaling that depends on the length of the text
// gets the length as another operand.
ValueId decode_rope(DecodeContext& c) {
  std::vector<ValueId> in = c.in;
  in.push_back(c.places);
  if (c.length && depends_on_length(c.node.attrs)) in.push_back(c.length());
  return c.graph.add("rope", in, c.node.attrs, c.name());
}

}  // namespace

void add_rope_ops(std::vector<OpDef>& table) {
  auto number = [](const char* name, const char* doc) {
    return optional({name, AttrKind::number, doc});
  };
  const AttrDef scaling = optional({"scaling",
                                    AttrKind::one_of,
                                    "how angles are changed for longer texts",
                                    {"none", "linear", "dynamic", "llama3", "yarn", "longrope"}},
                                   "none");
  table.push_back(
      {.name = "rope",
       .doc = "Rotary positions: rotates pairs of columns of each head by angles that grow with "
              "the position of the row.",
       .forms = {{"",
                  {{"x", "T[n,H*D]", "rows of H heads"},
                   optional(OperandDef{"positions", "i32[n]",
                                       "position of each row; r mod seq if absent"}),
                   optional(OperandDef{"length", "i32[1]", "length of the text; seq if absent"})},
                  {{"y", "T[n,H*D]", "rotated rows"}}}},
       .attrs = {{"heads", AttrKind::integer, "H"},
                 {"seq", AttrKind::integer, "rows of a sequence"},
                 {"theta", AttrKind::number, "base of the angles, > 1"},
                 optional({"dims", AttrKind::integer, "columns of a head that are rotated; 0: all"},
                          int64_t{0}),
                 optional({"period", AttrKind::integer,
                           "a head is rotated if its number modulo period is below rotated; heads "
                           "if absent"}),
                 optional({"rotated", AttrKind::integer, "see period; period if absent"}),
                 optional({"interleaved", AttrKind::flag,
                           "1: the columns of a pair are neighbours; 0: they are dims/2 apart"},
                          int64_t{0}),
                 optional({"inverse", AttrKind::flag, "1: rotates by the opposite angles"},
                          int64_t{0}),
                 scaling,
                 number("factor", "for every scaling except none and longrope, > 0"),
                 number("low", "for llama3 and yarn, > 0"),
                 number("high", "for llama3 and yarn, > 0"),
                 optional({"original", AttrKind::integer,
                           "length of texts before scaling; for dynamic, llama3 and yarn, and for "
                           "longrope with long_factors"}),
                 number("power", "for dynamic"),
                 optional({"factors", AttrKind::text,
                           "for longrope: dims/2 numbers > 0 with blanks between them"}),
                 optional({"long_factors", AttrKind::text,
                           "for longrope: factors for texts longer than original"}),
                 optional({"magnitude", AttrKind::number,
                           "factor of the result; 0: the factor that the scaling defines"},
                          0.0),
                 optional({"truncate", AttrKind::flag,
                           "for yarn: 1 rounds the first and the last scaled pair to whole ones"},
                          int64_t{1})},
       .infer = infer_rope,
       .backward = rope_backward,
       .flops = rope_flops,
       .rows = Rows::same,
       .decode = decode_rope,
       .decode_inputs = [](const Node&) { return size_t{1}; }});
}

}  // namespace ds
