// Adds layers as nodes of a graph. An attribute that has a default is set only if it differs from
// the default, so the text and the hash of a graph do not change when an op gains an attribute.
#include "nn/layers/layers.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "core/base/error.h"

namespace ds {
namespace {

// Random streams below this number are reserved for init_param, which numbers them by parameter.
constexpr int64_t kFirstDropoutStream = 1 << 15;

std::string join(std::string_view name, std::string_view part) {
  return fmt::format("{}.{}", name, part);
}

}  // namespace

int64_t LayerBuilder::width(ValueId x) const {
  const TensorType& type = graph_.type(x);
  require(type.shape.rank() == 2 && !type.shape[1].symbolic, "layer input must be [n,C], got {}",
          type.text());
  return type.shape[1].extent;
}

ValueId LayerBuilder::param(std::string_view name, std::string_view part, Shape shape, Init init) {
  return graph_.add_param(join(name, part), {dtype_, std::move(shape)}, std::move(init));
}

ValueId LayerBuilder::embedding(std::string_view name, ValueId ids, int64_t rows, int64_t width,
                                double stddev, int64_t padding) {
  ValueId w = param(name, "weight", {rows, width}, {"normal", stddev});
  Attrs attrs;
  if (padding >= 0) attrs.set("padding", padding);
  return graph_.add("embedding", {w, ids}, attrs, name);
}

// With documents, positions are an input of the graph, so they are looked up in the table like
// tokens.
ValueId LayerBuilder::position(std::string_view name, ValueId x, int64_t rows, int64_t seq,
                               double stddev) {
  ValueId w = param(name, "weight", {rows, width(x)}, {"normal", stddev});
  if (!documents_.positions.exists()) return graph_.add("position", {x, w}, {{"seq", seq}}, name);
  ValueId places = graph_.add("embedding", {w, documents_.positions}, {}, join(name, "rows"));
  return graph_.add("add", {x, places}, {}, name);
}

ValueId LayerBuilder::linear(std::string_view name, ValueId x, int64_t outputs,
                             const LinearOptions& options) {
  int64_t inputs = width(x);
  Shape shape = options.transposed ? Shape{inputs, outputs} : Shape{outputs, inputs};
  std::vector<ValueId> in{x, param(name, "weight", shape, {"normal", options.stddev})};
  if (options.bias) in.push_back(param(name, "bias", {outputs}, {"zeros", 0}));
  Attrs attrs;
  if (options.transposed) attrs.set("transposed", int64_t{1});
  return graph_.add("linear", in, attrs, name);
}

ValueId LayerBuilder::tied_linear(std::string_view name, ValueId x, std::string_view tied,
                                  std::string_view bias) {
  ParamId index = graph_.find_param(tied);
  require(index.exists(), "tied_linear '{}': parameter '{}' does not exist", name,
          TensorName(tied));
  std::vector<ValueId> in{x, graph_.params[index].value};
  if (!bias.empty()) {
    Dim outputs = graph_.type(in[1]).shape[0];
    in.push_back(graph_.add_param(bias, {dtype_, {outputs}}, {"zeros", 0}));
  }
  return graph_.add("linear", in, {}, name);
}

ValueId LayerBuilder::layer_norm(std::string_view name, ValueId x, double eps, bool affine) {
  if (!affine) return graph_.add("layer_norm", {x}, {{"eps", eps}}, name);
  ValueId w = param(name, "weight", {width(x)}, {"ones", 0});
  ValueId b = param(name, "bias", {width(x)}, {"zeros", 0});
  return graph_.add("layer_norm", {x, w, b}, {{"eps", eps}}, name);
}

// A norm with an offset multiplies by 1 + weight, so its weight starts at 0.
ValueId LayerBuilder::rms_norm(std::string_view name, ValueId x, double eps, int64_t columns,
                               bool offset) {
  ValueId w =
      param(name, "weight", {columns == 0 ? width(x) : columns}, {offset ? "zeros" : "ones", 0});
  Attrs attrs{{"eps", eps}};
  if (offset) attrs.set("offset", int64_t{1});
  return graph_.add("rms_norm", {x, w}, attrs, name);
}

ValueId LayerBuilder::activation(std::string_view name, ValueId x, const std::string& act) {
  if (act == "gelu_tanh") return graph_.add("gelu", {x}, {}, name);
  if (act == "gelu_erf") return graph_.add("gelu", {x}, {{"form", "erf"}}, name);
  if (act == "gelu_10") return graph_.add("gelu", {x}, {{"form", "10"}}, name);
  return graph_.add(act, {x}, {}, name);
}

ValueId LayerBuilder::gated(std::string_view name, const std::vector<ValueId>& gate_and_up,
                            const std::string& act) {
  return graph_.add("glu", gate_and_up, {{"act", act}}, name);
}

ValueId LayerBuilder::rope(std::string_view name, ValueId x, int64_t heads, int64_t seq,
                           const RopeOptions& rope, int64_t period, int64_t rotated) {
  Attrs attrs{{"heads", heads}, {"seq", seq}, {"theta", rope.theta}};
  if (rope.dims != 0) attrs.set("dims", rope.dims);
  if (period != 0) attrs.set("period", period);
  if (rotated != 0) attrs.set("rotated", rotated);
  if (rope.scaling != "none") attrs.set("scaling", rope.scaling);
  if (rope.scaling == "longrope") {
    attrs.set("factors", fmt::format("{}", fmt::join(rope.factors, " ")));
    attrs.set("long_factors", fmt::format("{}", fmt::join(rope.long_factors, " ")));
    attrs.set("original", rope.original);
  } else if (rope.scaling != "none") {
    attrs.set("factor", rope.factor);
  }
  if (rope.magnitude != 0) attrs.set("magnitude", rope.magnitude);
  if (rope.scaling == "dynamic") {
    attrs.set("original", rope.original);
    attrs.set("power", rope.power);
  }
  if (rope.scaling == "llama3" || rope.scaling == "yarn") {
    attrs.set("low", rope.low);
    attrs.set("high", rope.high);
    attrs.set("original", rope.original);
    if (!rope.truncate) attrs.set("truncate", int64_t{0});
  }
  std::vector<ValueId> in{x};
  if (documents_.positions.exists()) in.push_back(documents_.positions);
  return graph_.add("rope", in, attrs, name);
}

ValueId LayerBuilder::attention(std::string_view name, std::vector<ValueId> operands,
                                const AttentionOptions& options) {
  if (options.mask.exists()) operands.push_back(options.mask);
  Attrs attrs{{"heads", options.heads}, {"seq", options.seq}};
  if (options.kv_heads != options.heads) attrs.set("kv_heads", options.kv_heads);
  if (!options.causal) attrs.set("causal", int64_t{0});
  if (options.window != 0) attrs.set("window", options.window);
  if (options.scale != 0) attrs.set("scale", options.scale);
  if (options.softcap != 0) attrs.set("softcap", options.softcap);
  if (options.per_head) attrs.set("per_head", int64_t{1});
  if (options.dropout != 0) {
    attrs.set("dropout", options.dropout);
    attrs.set("op", kFirstDropoutStream + dropouts_++);
  }
  if (documents_.begin.exists()) {
    ensure(!options.mask.exists() && options.causal, "attention '{}' has documents and a mask",
           name);
    operands.push_back(documents_.begin);
    attrs.set("documents", int64_t{1});
  }
  return graph_.add("attention", operands, attrs, name);
}

ValueId LayerBuilder::add(std::string_view name, ValueId a, ValueId b) {
  return graph_.add("add", {a, b}, {}, name);
}

ValueId LayerBuilder::dropout(std::string_view name, ValueId x, double p) {
  if (p == 0) return x;
  return graph_.add("dropout", {x}, {{"p", p}, {"op", kFirstDropoutStream + dropouts_++}}, name);
}

ValueId LayerBuilder::layerdrop(std::string_view name, ValueId x, ValueId y, double p) {
  if (p == 0) return y;
  return graph_.add("layerdrop", {x, y}, {{"p", p}, {"op", kFirstDropoutStream + dropouts_++}},
                    name);
}

}  // namespace ds
