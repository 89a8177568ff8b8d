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

void check_factors(const Attrs& attrs, std::string_view name, int64_t pairs) {
  std::array<double, kMostRopeFactors> factors;
  int64_t count = read_rope_factors(attrs, name, factors);
  require(count == pairs && pairs <= kMostRopeFactors,
          "rope: attribute '{}' must hold dims/2 = {} numbers, at most {}, got {}", name, pairs,
          kMostRopeFactors, count);
  for (int64_t i = 0; i < count; ++i) {
    double factor = factors[static_cast<size_t>(i)];
    require(factor > 0 && std::isfinite(factor), "rope: attribute '{}' must be > 0, got {}", name, factor);
  }
}

void check_longrope(const OperandCheck& check, const Attrs& attrs, int64_t pairs) {
  check_factors(attrs, "factors", pairs);
  if (!attrs.has("long_factors")) return;
  check_factors(attrs, "long_factors", pairs);
  check.positive(attrs, "original");
}

void check_scaling(const OperandCheck& check, const Attrs& attrs, int64_t pairs) {
  std::string_view scaling =
      check.word(attrs, "scaling", {"none", "linear", "dynamic", "llama3", "yarn", "longrope"}, "none");
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
  if (scaling == "yarn") {
    check_positive(attrs, "high");
    check.within(attrs, "truncate", 0, 1, 1);
    return;
  }
  double low = attrs.real("low"), high = attrs.real("high");
  require(high > low, "rope: attribute 'high' must be greater than 'low' {}, got {}", low, high);
}

Types infer_rope(In in, const Attrs& attrs) {
  OperandCheck check("rope", {"x", "positions", "length"}, in);
  check.matrix(0);
  if (in.size() >= 2) check.equal(1, {DS_DTYPE_I32, {in[0].shape[0]}});
  if (in.size() == 3) check.equal(2, {DS_DTYPE_I32, {1}});
  int64_t heads = check.positive(attrs, "heads");
  check.positive(attrs, "seq");
  require(attrs.real("theta") > 1, "rope: attribute 'theta' must be > 1, got {}", attrs.real("theta"));
  int64_t columns = in[0].shape[1].extent;
  bool whole = attrs.integer_or("dims", 0) == 0;  // all columns of a head turn
  int64_t unit = whole ? 2 * heads : heads;
  require(columns % unit == 0, "rope: operand 'x' must have a multiple of {} = {} columns, got {}",
          whole ? "2*heads" : "heads", unit, in[0].text());
  int64_t dims = check.within(attrs, "dims", 0, columns / heads, 0);
  require(dims % 2 == 0, "rope: attribute 'dims' must be even, got {}", dims);
  int64_t period = check.within(attrs, "period", 1, heads, heads);
  check.within(attrs, "rotated", 1, period, period);
  check.flag(attrs, "interleaved");
  check.flag(attrs, "inverse");
  check_scaling(check, attrs, (dims == 0 ? columns / heads : dims) / 2);
  return {in[0]};
}

// The adjoint of a rotation is the rotation by the opposite angle.
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

// Four products and two sums a rotated pair.
double rope_flops(In in, const Attrs& attrs, int64_t n) {
  int64_t heads = attrs.integer("heads"), depth = in[0].shape[1].extent / heads;
  int64_t dims = attrs.integer_or("dims", 0), period = attrs.integer_or("period", heads);
  int64_t rotated = attrs.integer_or("rotated", period);
  int64_t turning = heads / period * rotated + std::min(heads % period, rotated);
  double rows = static_cast<double>(in[0].shape.numel(n)) / static_cast<double>(heads * depth);
  return 3.0 * rows * static_cast<double>(turning * (dims == 0 ? depth : dims));
}

ValueId decode_rope(DecodeContext& c) {
  std::vector<ValueId> in = c.in;
  in.push_back(c.places);
  if (c.length && depends_on_length(c.node.attrs)) in.push_back(c.length());
  return c.graph.add("rope", in, c.node.attrs, c.name());
}

}  // namespace

void add_rope_ops(std::vector<OpDef>& table) {
  table.push_back(
      {.name = "rope",
       .min_inputs = 1,
       .max_inputs = 3,
       .attrs = {"heads", "seq", "theta"},
       .infer = infer_rope,
       .backward = rope_backward,
       .flops = rope_flops,
       .optional = {"dims", "period", "rotated", "interleaved", "inverse", "scaling", "factor", "low", "high",
                    "original", "power", "factors", "long_factors", "magnitude", "truncate"},
       .rows = Rows::same,
       .decode = decode_rope});
}

}  // namespace ds
