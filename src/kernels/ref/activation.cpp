// Activations and their gradients. activations.h has the formulas; attribute `form` of gelu chooses
// among three of them.
#include <string_view>

#include "kernels/ref/activations.h"
#include "kernels/ref/ref.h"

namespace ds::ref {
namespace {

// y = Act(x)
template <typename T, typename Act>
void activate(const KernelContext& c) {
  map<T>(c, [](Wide<T> x) { return Act::value(x); });
}

// dx = dy Act'(x)
template <typename T, typename Act>
void activate_dx(const KernelContext& c) {
  map<T>(c, [](Wide<T> dy, Wide<T> x) { return dy * Act::slope(x); });
}

template <typename Act>
void add(KernelRegistry& registry, const char* op, const char* gradient) {
  add_by_type(registry, op, []<typename T>() { return activate<T, Act>; });
  add_by_type(registry, gradient, []<typename T>() { return activate_dx<T, Act>; });
}

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

}  // namespace

void add_activation(KernelRegistry& registry) {
  add<Silu>(registry, "silu", "silu_dx");
  add<Tanh>(registry, "tanh", "tanh_dx");
  add<Relu2>(registry, "relu2", "relu2_dx");
  add<Laplace>(registry, "laplace", "laplace_dx");
  add<Sigmoid>(registry, "sigmoid", "sigmoid_dx");
  add<QuickGelu>(registry, "quick_gelu", "quick_gelu_dx");
  add<Softplus>(registry, "softplus", "softplus_dx");
  add_by_type(registry, "gelu", []<typename T>() { return gelu<T>; });
  add_by_type(registry, "gelu_dx", []<typename T>() { return gelu_dx<T>; });
}

}  // namespace ds::ref
