#pragma once
#include <cstdint>

#include "core/base/ids.h"
#include "core/graph/graph.h"

namespace ds {

// The parameters that updates leave out because no rank has a gradient of them (missing_gradients
// "skip"). Both members are empty while no parameter has been left out.
struct LeftOut {
  // Whether the update of the current step leaves out each parameter.
  IdVector<ParamId, char> now;
  // The number of updates that left out each parameter, besides those that ElementRun::missed
  // counts.
  IdVector<ParamId, int64_t> updates;

  bool has(int64_t param) const {
    return !now.empty() && now[ParamId(static_cast<int32_t>(param))] != 0;
  }
  int64_t count(int64_t param) const {
    return updates.empty() ? 0 : updates[ParamId(static_cast<int32_t>(param))];
  }
};

}  // namespace ds
