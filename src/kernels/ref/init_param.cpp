#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>

#include "core/base/random.h"
#include "core/base/round.h"
#include "kernels/ref/ref.h"

namespace ds::ref {
namespace {

// The one kernel of its instruction, so it uses the team: a large model draws for minutes on one thread.
constexpr int64_t kBlock = 16384;

// out[i] = element begin + i of parameter `param`: 0, 1, or scale times a standard normal; f32
void init_param(const KernelContext& c) {
  float* out = c.out[0].as<float>();
  const std::string& kind = c.attrs.text("kind");
  int64_t begin = c.attrs.integer("begin");
  double scale = c.attrs.real("scale");
  RandomStream stream = init_stream(c.scalars.seed, static_cast<uint32_t>(c.attrs.integer("param")));
  ensure(kind == "zeros" || kind == "ones" || kind == "normal",
         "init_param: kind must be zeros, ones or normal, got '{}'", kind);
  const int64_t count = c.out[0].numel();
  auto draw = [&](int64_t task, int) {
    for (int64_t i = task * kBlock; i < std::min(count, (task + 1) * kBlock); ++i) {
      out[i] = kind == "normal"
                   ? static_cast<float>(scale * normal_element(stream, static_cast<uint64_t>(begin + i)))
                   : (kind == "ones" ? 1.0f : 0.0f);
    }
  };
  c.team.parallel_for(ceil_div(count, kBlock), std::cref(draw));
}

}  // namespace

void add_init_param(KernelRegistry& registry) { add_kernel(registry, "init_param", init_param); }

}  // namespace ds::ref
