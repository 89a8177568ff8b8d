// Updates of optimizers with one state beside the master, compiled once per instruction set.
#if defined(DS_KERNELS_CPU_ONE_STATE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DS_KERNELS_CPU_ONE_STATE_INL_H_
#undef DS_KERNELS_CPU_ONE_STATE_INL_H_
#else
#define DS_KERNELS_CPU_ONE_STATE_INL_H_
#endif

#include <cstdint>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/skipped.h"

HWY_BEFORE_NAMESPACE();
namespace ds::cpu::HWY_NAMESPACE {

struct MasterAndState {
  Vec p, state;
};

// in: grad; out: master, state, param of type T. `update(step, grad, {p, state})` gives both anew, where
// Step(c) holds the constants.
template <typename T, typename Step>
void update_one_state(const KernelContext& c) {
  if (c.scalars.skip != 0) return skip_update(c);
  const float* grad = c.in[0].as<float>();
  float *master = c.out[0].as<float>(), *state = c.out[1].as<float>();
  T* param = c.out[2].as<T>();
  const Step step(c);
  for_blocks(c.team, c.in[0].numel(), kBlock, [=](int64_t begin, int64_t end) HWY_ATTR {
    int64_t e = begin, width = lanes();
    for (; e + width <= end; e += width) {
      MasterAndState next = update(step, load(grad + e), {load(master + e), load(state + e)});
      store(next.p, master + e);
      store(next.state, state + e);
      store(next.p, param + e);
    }
    if (int64_t left = end - e; left > 0) {
      MasterAndState next =
          update(step, load_part(grad + e, left), {load_part(master + e, left), load_part(state + e, left)});
      store_part(next.p, master + e, left);
      store_part(next.state, state + e, left);
      store_part(next.p, param + e, left);
    }
  });
}

template <typename Step>
void update_one_state_of(const KernelContext& c) {
  by_type(c.out[2].dtype, [&](auto t) { update_one_state<decltype(t), Step>(c); });
}

}  // namespace ds::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
