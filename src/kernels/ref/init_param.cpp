#include "core/base/random.h"
#include "kernels/ref/ref.h"

namespace ds::ref {
namespace {

// out[i] = element begin + i of parameter `param`: 0, 1, or scale times a standard normal; f32
void init_param(const KernelContext& c) {
  float* out = c.out[0].as<float>();
  const std::string& kind = c.attrs.text("kind");
  int64_t begin = c.attrs.integer("begin");
  double scale = c.attrs.real("scale");
  RandomStream stream{c.scalars.seed, 0, 0, static_cast<uint32_t>(c.attrs.integer("param"))};
  ensure(kind == "zeros" || kind == "ones" || kind == "normal",
         "init_param: kind must be zeros, ones or normal, got '{}'", kind);
  for (int64_t i = 0; i < c.out[0].numel(); ++i) {
    if (kind == "normal") {
      out[i] = static_cast<float>(scale * normal_element(stream, static_cast<uint64_t>(begin + i)));
    } else {
      out[i] = kind == "ones" ? 1.0f : 0.0f;
    }
  }
}

}  // namespace

void add_init_param(KernelRegistry& registry) { add_kernel(registry, "init_param", init_param); }

}  // namespace ds::ref
