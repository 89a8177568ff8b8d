#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "core/base/ids.h"
#include "core/graph/graph.h"

namespace ds {

// Training state that lies in files, open for one process: whole tensors by name, f32, of every kind of
// state.
class StateSource {
 public:
  virtual ~StateSource() = default;

  std::string form;                // "deepspeed", "universal", "libds"
  CheckpointInfo info;             // path: the folder that was read
  std::vector<std::string> kinds;  // "master" first
  IdVector<ParamId, std::string> names;
  IdVector<ParamId, std::vector<int64_t>> shapes;

  // Elements [begin, begin + count) of one kind of a parameter.
  virtual void read(size_t kind, ParamId param, int64_t begin, int64_t count, float* out) = 0;

  int64_t numel(ParamId param) const;
  int64_t updates(ParamId param) const;  // that the parameter has had
};

}  // namespace ds
