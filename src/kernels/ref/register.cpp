// The list of reference kernels. Every op and instruction has one.
#include "kernels/ref/ref.h"

namespace ds {
namespace ref {
void add_kernel(KernelRegistry& registry, const char* op, KernelFn run) {
  registry.add({op, "ref", run});
}

}  // namespace ref

// The order does not matter, because no two files register the same op.
void register_ref(KernelRegistry& registry) {
  using namespace ref;
  for (Registration* add : {add_embedding,
                            add_position,
                            add_last_row,
                            add_linear,
                            add_linear_cross_entropy,
                            add_layer_norm,
                            add_activation,
                            add_relu,
                            add_rms_norm,
                            add_glu,
                            add_mul,
                            add_scale,
                            add_softcap,
                            add_rope,
                            add_top_gates,
                            add_scale_rows,
                            add_load_balance,
                            add_attention,
                            add_cached_attention,
                            add_add,
                            add_dropout,
                            add_softmax,
                            add_cross_entropy,
                            add_count_targets,
                            add_mse,
                            add_preference,
                            add_dora,
                            add_fill,
                            add_cast,
                            add_zero,
                            add_accumulate,
                            add_init_param,
                            add_granule_norms,
                            add_step,
                            add_quantize,
                            add_row_table,
                            add_adamw,
                            add_adamw_codes,
                            add_sgd,
                            add_lion,
                            add_adagrad,
                            add_lamb,
                            add_muon,
                            add_signs,
                            add_momentum,
                            add_frozen_adam,
                            add_local_adam,
                            add_frozen_lamb,
                            add_top})
    add(registry);
}

}  // namespace ds
