#pragma once
#include <functional>
#include <string>
#include <string_view>

#include "core/base/json.h"
#include "io/file.h"
#include "nn/models/hf.h"
#include "support/errors.h"
#include "support/hf_golden.h"

namespace ds::test {

inline Json config_of(const std::string& model) {
  return Json::parse(read_file(golden_path(model) + "/config.json"));
}

inline void drop(Json& config, std::string_view key) {
  std::erase_if(config.object(), [&](const auto& member) { return member.first == key; });
}

// Returns the text of the graph of a model's configuration after `change`.
inline std::string graph_of(const std::string& model,
                            const std::function<void(Json&)>& change = {}) {
  Json config = config_of(model);
  if (change) change(config);
  return hf_model(config, 32, 16).graph.print();
}

inline std::string refusal(const std::string& model, ds_status status, const std::string& key,
                           const Json& value) {
  return message_of([&] { graph_of(model, [&](Json& c) { c.set(key, value); }); }, status);
}

}  // namespace ds::test
