#include "support/delegate_calls.h"

#include <fmt/core.h>

namespace ds::test {

Plan delegate_plan(const Config& config, int params, int rank, int world) {
  IdVector<ParamId, ParamSpec> specs;
  IdVector<ParamId, Shape> shapes;
  for (int p = 0; p < params; ++p) {
    specs.push_back({fmt::format("h.{}.w", p), 40 * 33});
    shapes.push_back(Shape{40, 33});
  }
  return compile_delegate(config, specs, shapes, rank, world, Machine{});
}

IdVector<EventId, HostEvent> layer_calls(int params, int64_t micros, ParamId missing_last) {
  using Kind = HostEvent::Kind;
  IdVector<EventId, HostEvent> out;
  for (int64_t m = 0; m < micros; ++m) {
    for (int p = 0; p < params; ++p) {
      out.push_back({Kind::gather, {ParamId(p)}});
      out.push_back({Kind::release, {ParamId(p)}});
    }
    for (int p = params - 1; p >= 0; --p) {
      out.push_back({Kind::gather, {ParamId(p)}});
      bool comes = m + 1 < micros || ParamId(p) != missing_last;
      if (comes) out.push_back({Kind::grad, {ParamId(p)}});
      out.push_back({Kind::release, {ParamId(p)}});
    }
    out.push_back({Kind::end, {}});
  }
  return out;
}

}  // namespace ds::test
