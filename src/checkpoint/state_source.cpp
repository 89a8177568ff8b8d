#include "checkpoint/state_source.h"

#include "core/base/error.h"

namespace ds {

void StateSource::read_buffer(size_t, const Bytes&) {
  raise(DS_ERROR_INTERNAL, "{} has no buffers", form);
}

int64_t StateSource::numel(ParamId param) const {
  int64_t n = 1;
  for (int64_t extent : shapes[param]) n *= extent;
  return n;
}

int64_t StateSource::updates(ParamId param) const {
  for (const auto& [name, count] : info.updates) {
    if (name == names[param]) return count;
  }
  return info.updates_taken();
}

}  // namespace ds
