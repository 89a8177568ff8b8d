#include "nn/layers/layers.h"

#include "core/base/error.h"

namespace ds {
namespace {

// Streams below belong to init_param, which numbers them by parameter.
constexpr int64_t kFirstDropoutStream = 1 << 15;

std::string join(std::string_view name, std::string_view part) { return fmt::format("{}.{}", name, part); }

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
                                double stddev) {
  ValueId w = param(name, "weight", {rows, width}, {"normal", stddev});
  return graph_.add("embedding", {w, ids}, {}, name);
}

ValueId LayerBuilder::position(std::string_view name, ValueId x, int64_t rows, int64_t seq, double stddev) {
  ValueId w = param(name, "weight", {rows, width(x)}, {"normal", stddev});
  return graph_.add("position", {x, w}, {{"seq", seq}}, name);
}

ValueId LayerBuilder::linear(std::string_view name, ValueId x, int64_t outputs, double stddev) {
  ValueId w = param(name, "weight", {outputs, width(x)}, {"normal", stddev});
  ValueId b = param(name, "bias", {outputs}, {"zeros", 0});
  return graph_.add("linear", {x, w, b}, {}, name);
}

ValueId LayerBuilder::tied_linear(std::string_view name, ValueId x, std::string_view tied) {
  int32_t index = graph_.find_param(tied);
  require(index >= 0, "tied_linear '{}': parameter '{}' does not exist", name, tied);
  return graph_.add("linear", {x, graph_.params[static_cast<size_t>(index)].value}, {}, name);
}

ValueId LayerBuilder::layer_norm(std::string_view name, ValueId x) {
  ValueId w = param(name, "weight", {width(x)}, {"ones", 0});
  ValueId b = param(name, "bias", {width(x)}, {"zeros", 0});
  return graph_.add("layer_norm", {x, w, b}, {{"eps", 1e-5}}, name);
}

ValueId LayerBuilder::dropout(std::string_view name, ValueId x, double p) {
  if (p == 0) return x;
  return graph_.add("dropout", {x}, {{"p", p}, {"op", kFirstDropoutStream + dropouts_++}}, name);
}

}  // namespace ds
