#pragma once
#include <algorithm>
#include <vector>

#include "engine/options.h"

namespace ds::test {

// Returns options that set initial values by parameter index. Parameters without values keep their
// default initialization.
inline EngineOptions with_values(std::vector<std::vector<float>> values,
                                 EngineOptions options = {}) {
  options.initial = [values = std::move(values)](ParamId p, const std::string&, int64_t first,
                                                 std::span<float> out) {
    const auto at = static_cast<size_t>(p.number());
    if (at < values.size() && !values[at].empty())
      std::copy_n(values[at].begin() + first, out.size(), out.begin());
  };
  return options;
}

}  // namespace ds::test
