// Activations and their gradients, each computed in one pass over memory. activations-inl.h has the
// formulas.
#include <string_view>

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/activation.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/activations-inl.h"
#include "kernels/cpu/cpu.h"

HWY_BEFORE_NAMESPACE();
namespace ds::cpu::HWY_NAMESPACE {

// Attribute `form` selects the formula of gelu: with tanh, with erf, or with erf and limited to 10.
template <typename T>
void gelu(const KernelContext& c) {
  std::string_view form = c.attrs.text_or("form", "tanh");
  form == "erf"  ? activate<T, GeluErf>(c)
  : form == "10" ? activate<T, Gelu10>(c)
                 : activate<T, GeluTanh>(c);
}

template <typename T>
void gelu_dx(const KernelContext& c) {
  std::string_view form = c.attrs.text_or("form", "tanh");
  form == "erf"  ? activate_dx<T, GeluErf>(c)
  : form == "10" ? activate_dx<T, Gelu10>(c)
                 : activate_dx<T, GeluTanh>(c);
}

template <typename Act>
void add(KernelRegistry& registry, const char* op, const char* gradient) {
  add_by_type(registry, op, []<typename T>() { return activate<T, Act>; });
  add_by_type(registry, gradient, []<typename T>() { return activate_dx<T, Act>; });
}

void add_activation(KernelRegistry& registry) {
  add_by_type(registry, "gelu", []<typename T>() { return gelu<T>; });
  add_by_type(registry, "gelu_dx", []<typename T>() { return gelu_dx<T>; });
  add<Silu>(registry, "silu", "silu_dx");
  add<Tanh>(registry, "tanh", "tanh_dx");
  add<Relu2>(registry, "relu2", "relu2_dx");
  add<Sigmoid>(registry, "sigmoid", "sigmoid_dx");
  add<QuickGelu>(registry, "quick_gelu", "quick_gelu_dx");
  add<Softplus>(registry, "softplus", "softplus_dx");
  add<Laplace>(registry, "laplace", "laplace_dx");
}

}  // namespace ds::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
