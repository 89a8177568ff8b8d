// The soft cap of logits (Gemma 2, arXiv:2408.00118): a smooth bound that hardly changes small
// values. The gradient is computed from y, so x need not be kept.
#include <cmath>

#include "kernels/ref/ref.h"

namespace ds::ref {
namespace {

// y = cap tanh(x / cap)
template <typename T>
void softcap(const KernelContext& c) {
  Wide<T> cap = static_cast<Wide<T>>(c.attrs.real("cap"));
  map<T>(c, [&](Wide<T> x) { return cap * std::tanh(x / cap); });
}

// dx = dy (1 - (y / cap)^2)
template <typename T>
void softcap_dx(const KernelContext& c) {
  Wide<T> cap = static_cast<Wide<T>>(c.attrs.real("cap"));
  map<T>(c, [&](Wide<T> dy, Wide<T> y) { return dy * (1 - (y / cap) * (y / cap)); });
}

}  // namespace

void add_softcap(KernelRegistry& registry) {
  add_by_type(registry, "softcap", []<typename T>() { return softcap<T>; });
  add_by_type(registry, "softcap_dx", []<typename T>() { return softcap_dx<T>; });
}

}  // namespace ds::ref
