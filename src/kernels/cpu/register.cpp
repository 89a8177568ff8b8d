// The family "cpu": its kernels, and the launches that all of them refuse. This file is compiled
// once per instruction set; the set is chosen when the kernels are registered.
#include <algorithm>
#include <span>
#include <string>

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/register.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/kernel_facts.h"
#include "kernels/cpu/linear_cross_entropy.h"

HWY_BEFORE_NAMESPACE();
namespace ds::cpu::HWY_NAMESPACE {

// The registrations that exist once per instruction set. cpu.h declares those that exist only once.
Registration add_position, add_linear_db, add_layer_norm, add_activation, add_rms_norm, add_glu,
    add_mul, add_scale, add_softcap, add_rope, add_scale_rows, add_relu, add_attention,
    add_cached_attention, add_attention_dx, add_add, add_dropout, add_softmax, add_cross_entropy,
    add_mse, add_dora, add_cast, add_accumulate, add_granule_norms, add_quantize, add_adamw,
    add_adamw_codes, add_sgd, add_lion, add_adagrad, add_lamb, add_muon, add_signs, add_momentum,
    add_frozen_adam, add_local_adam, add_frozen_lamb;

// Registers the kernels of one instruction set.
void add_all(KernelRegistry& registry) {
  for (Registration* add : {add_embedding,
                            add_position,
                            add_linear,
                            add_linear_cross_entropy,
                            add_linear_db,
                            add_layer_norm,
                            add_activation,
                            add_rms_norm,
                            add_glu,
                            add_mul,
                            add_scale,
                            add_softcap,
                            add_rope,
                            add_scale_rows,
                            add_relu,
                            add_attention,
                            add_cached_attention,
                            add_attention_dx,
                            add_add,
                            add_dropout,
                            add_softmax,
                            add_cross_entropy,
                            add_mse,
                            add_dora,
                            add_cast,
                            add_zero,
                            add_accumulate,
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
                            add_frozen_lamb})
    add(registry);
}

}  // namespace ds::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ds {
namespace cpu {
namespace {

// Returns why the family refuses a launch, or "". f64 operands are left to the reference, except
// for the f64 sums that some instructions read or write.
std::string refuse(const KernelQuery& query) {
  for (std::span<const DType> types : {query.in, query.out}) {
    for (DType type : types) {
      bool sums = query.op == "granule_norms" || query.op == "sum_norms" || query.op == "clip" ||
                  query.op == "lamb_moments" || query.op == "frozen_lamb_moments" ||
                  query.op == "add_error" || query.op == "mean_signs" || query.op == "pack_signs";
      if (type == DS_DTYPE_F64 && !sums) return "does not support f64 operands";
    }
  }
  return refuse_kept_logits(query);
}

}  // namespace

void add_kernel(KernelRegistry& registry, const char* op, KernelFn run) {
  registry.add({op, "cpu", run, refuse});
}

HWY_EXPORT(add_all);

}  // namespace cpu

// Applies DS_MAX_ISA, then chooses the instruction set for the rest of the process.
void register_cpu(KernelRegistry& registry) {
  using namespace cpu;
  limit_isa_from_environment();
  HWY_DYNAMIC_DISPATCH(add_all)(registry);
}

}  // namespace ds
#endif  // HWY_ONCE
