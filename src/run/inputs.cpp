#include "run/inputs.h"

#include "core/base/error.h"

namespace ds {

ModelInputs::ModelInputs(const HfModel& model, int64_t count, int64_t seq) {
  const Graph& graph = model.graph;
  for (ValueId input : graph.inputs) {
    const std::string& name = graph.values[input].name;
    if (name == "tokens") {
      kinds_.push_back(Kind::tokens);
    } else if (name == "targets") {
      kinds_.push_back(Kind::targets);
    } else if (name == "mask") {
      kinds_.push_back(Kind::mask);
      ones_.assign(static_cast<size_t>(count), 1);
    } else if (name == "token_types") {
      kinds_.push_back(Kind::types);
      zeros_.assign(static_cast<size_t>(count), 0);
    } else {
      ensure(name == "positions", "family {} has an input '{}' that a run does not fill", model.family, name);
      kinds_.push_back(Kind::positions);
      for (int64_t i = 0; i < count; ++i) {
        positions_.push_back(static_cast<int32_t>(model.position_offset + i % seq));
      }
    }
  }
  vocabulary_ = graph.type(graph.outputs.at(1)).shape[1].extent;
}

std::vector<InputView> ModelInputs::views(std::span<const int32_t> tokens,
                                          std::span<const int32_t> targets) const {
  auto count = static_cast<int64_t>(tokens.size());
  std::vector<InputView> out;
  for (Kind kind : kinds_) {
    const int32_t* data = kind == Kind::tokens    ? tokens.data()
                          : kind == Kind::targets ? targets.data()
                          : kind == Kind::mask    ? ones_.data()
                          : kind == Kind::types   ? zeros_.data()
                                                  : positions_.data();
    out.push_back({data, DS_DTYPE_I32, count});
  }
  return out;
}

}  // namespace ds
