#include <algorithm>
#include <span>
#include <string>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/features.h"
#include "kernels/cpu/linear_cross_entropy.h"

namespace ds {
namespace cpu {
namespace {

std::string refuse(const KernelQuery& query) {
  for (std::span<const DType> types : {query.in, query.out}) {
    for (DType type : types) {
      bool sums = query.op == "granule_norms" || query.op == "sum_norms" || query.op == "clip" ||
                  query.op == "lamb_moments" || query.op == "frozen_lamb_moments" ||
                  query.op == "add_error" || query.op == "mean_signs" || query.op == "pack_signs";
      if (type == DS_DTYPE_F64 && !sums) return "f64 operands";
    }
  }
  return refuse_kept_logits(query);
}

}  // namespace

void add_kernel(KernelRegistry& registry, std::string op, KernelFn run) {
  registry.add({std::move(op), "cpu", run, refuse});
}

}  // namespace cpu

void register_cpu(KernelRegistry& registry) {
  limit_isa_from_environment();
  cpu::add_embedding(registry);
  cpu::add_position(registry);
  cpu::add_linear(registry);
  cpu::add_linear_cross_entropy(registry);
  cpu::add_linear_db(registry);
  cpu::add_layer_norm(registry);
  cpu::add_activation(registry);
  cpu::add_rms_norm(registry);
  cpu::add_glu(registry);
  cpu::add_mul(registry);
  cpu::add_scale(registry);
  cpu::add_softcap(registry);
  cpu::add_rope(registry);
  cpu::add_scale_rows(registry);
  cpu::add_relu(registry);
  cpu::add_attention(registry);
  cpu::add_cached_attention(registry);
  cpu::add_attention_dx(registry);
  cpu::add_add(registry);
  cpu::add_dropout(registry);
  cpu::add_softmax(registry);
  cpu::add_cross_entropy(registry);
  cpu::add_mse(registry);
  cpu::add_cast(registry);
  cpu::add_zero(registry);
  cpu::add_accumulate(registry);
  cpu::add_granule_norms(registry);
  cpu::add_step(registry);
  cpu::add_quantize(registry);
  cpu::add_row_table(registry);
  cpu::add_adamw(registry);
  cpu::add_adamw_codes(registry);
  cpu::add_sgd(registry);
  cpu::add_lion(registry);
  cpu::add_adagrad(registry);
  cpu::add_lamb(registry);
  cpu::add_muon(registry);
  cpu::add_signs(registry);
  cpu::add_momentum(registry);
  cpu::add_frozen_adam(registry);
  cpu::add_local_adam(registry);
  cpu::add_frozen_lamb(registry);
}

}  // namespace ds
