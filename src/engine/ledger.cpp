#include "core/base/error.h"
#include "engine/core.h"

namespace ds {

// Counts the buffers that the arenas and the scratch file were sized for, each once: a parameter that is its
// own master is a parameter.
std::map<std::pair<Tier, std::string>, int64_t> EngineCore::state_bytes() const {
  std::map<std::pair<Tier, std::string>, int64_t> out;
  IdVector<BufferId, char> seen(placed().buffers.size(), 0);
  auto add = [&](BufferId id, const std::string& kind) {
    const Buffer& b = placed().buffers[id];
    ensure(b.offset >= 0, "%{} has no place", b.name);
    if (!seen[id]) out[{b.tier, kind}] += b.bytes();
    seen[id] = 1;
  };
  for (const BucketState& s : zero().buckets) {
    add(s.param.buffer, "param");
    add(s.master.buffer, "master");
    for (size_t i = 0; i < s.states.size(); ++i) add(s.states[i].buffer, state_kinds()[i + 1]);
    for (BufferId grad : s.grad) add(grad, "grad");
    for (BufferId error : s.errors) add(error, "error");
  }
  return out;
}

}  // namespace ds
