#include <algorithm>
#include <span>
#include <string>

#include "kernels/ref/ref.h"

namespace ds {
namespace ref {
void add_kernel(KernelRegistry& registry, std::string op, KernelFn run) {
  registry.add({std::move(op), "ref", run});
}

}  // namespace ref

void register_ref(KernelRegistry& registry) {
  ref::add_embedding(registry);
  ref::add_position(registry);
  ref::add_last_row(registry);
  ref::add_linear(registry);
  ref::add_linear_cross_entropy(registry);
  ref::add_layer_norm(registry);
  ref::add_activation(registry);
  ref::add_relu(registry);
  ref::add_rms_norm(registry);
  ref::add_glu(registry);
  ref::add_mul(registry);
  ref::add_scale(registry);
  ref::add_softcap(registry);
  ref::add_rope(registry);
  ref::add_top_gates(registry);
  ref::add_scale_rows(registry);
  ref::add_load_balance(registry);
  ref::add_attention(registry);
  ref::add_cached_attention(registry);
  ref::add_add(registry);
  ref::add_dropout(registry);
  ref::add_softmax(registry);
  ref::add_cross_entropy(registry);
  ref::add_count_targets(registry);
  ref::add_mse(registry);
  ref::add_fill(registry);
  ref::add_cast(registry);
  ref::add_zero(registry);
  ref::add_accumulate(registry);
  ref::add_init_param(registry);
  ref::add_granule_norms(registry);
  ref::add_step(registry);
  ref::add_quantize(registry);
  ref::add_row_table(registry);
  ref::add_adamw(registry);
  ref::add_adamw_codes(registry);
  ref::add_sgd(registry);
  ref::add_lion(registry);
  ref::add_adagrad(registry);
  ref::add_lamb(registry);
  ref::add_muon(registry);
  ref::add_signs(registry);
  ref::add_momentum(registry);
  ref::add_frozen_adam(registry);
  ref::add_local_adam(registry);
  ref::add_frozen_lamb(registry);
  ref::add_top(registry);
}

}  // namespace ds
