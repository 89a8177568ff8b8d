#include "compile/named_params.h"

#include <fmt/core.h>
#include <fnmatch.h>

#include "core/base/error.h"
#include "core/base/suggest.h"

namespace ds {
namespace {

// Returns the parameters whose names match one of the patterns, with '*' and '?' as in file names.
// Throws DS_ERROR_CONFIG naming `key` for a pattern that matches no parameter.
std::vector<ParamId> match(const std::string& key, const std::vector<std::string>& patterns,
                           const IdVector<ParamId, std::string>& names) {
  std::vector<ParamId> out;
  for (const std::string& pattern : patterns) {
    size_t before = out.size();
    for (ParamId p : names.ids()) {
      if (fnmatch(pattern.c_str(), names[p].c_str(), 0) == 0) out.push_back(p);
    }
    if (out.size() > before) continue;
    std::string near = suggest(pattern, names);
    raise(DS_ERROR_CONFIG, "{}: '{}' matches none of {} parameters{}", KeyName(key), pattern,
          names.size(), near.empty() ? near : fmt::format("; did you mean '{}'?", near));
  }
  return out;
}

}  // namespace

IdVector<ParamId, char> frozen_by_name(const std::vector<std::string>& patterns,
                                       const IdVector<ParamId, std::string>& names) {
  IdVector<ParamId, char> frozen(names.size(), 0);
  for (ParamId p : match("frozen_parameters", patterns, names)) frozen[p] = 1;
  return frozen;
}

IdVector<ParamId, int32_t> groups_by_name(const OptimizerConfig& config,
                                          const IdVector<ParamId, std::string>& names,
                                          const IdVector<ParamId, size_t>& dims) {
  IdVector<ParamId, int32_t> groups(names.size(), 0);
  for (size_t i = 0; i < config.groups.size(); ++i) {
    const auto group = static_cast<int32_t>(i + 1);
    // This group gets the parameters with fewer than two dimensions that no earlier group contains.
    if (config.groups[i].norms_and_biases) {
      for (ParamId p : names.ids())
        groups[p] = groups[p] == 0 && dims.at(p) < 2 ? group : groups[p];
      continue;
    }
    const std::string key = fmt::format("optimizer.param_groups[{}].params", i);
    for (ParamId p : match(key, config.groups[i].params, names)) {
      if (groups[p] != 0 && groups[p] != group)
        raise(DS_ERROR_CONFIG,
              "{}: parameter '{}' is also in optimizer.param_groups[{}]; name it in one group",
              KeyName(key), TensorName(names[p]), groups[p] - 1);
      groups[p] = group;
    }
  }
  return groups;
}

}  // namespace ds
