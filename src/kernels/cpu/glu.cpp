// Gated linear units and their gradients, each computed in one pass over memory.
#include <algorithm>
#include <cstdint>

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/glu.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/activations-inl.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/formulas/activation_names.h"
#include "kernels/formulas/gated.h"

HWY_BEFORE_NAMESPACE();
namespace ds::cpu::HWY_NAMESPACE {

// y = act(gate) up
template <typename T, typename Act>
void glu_of(const KernelContext& c) {
  Gated<T> x(c.in);
  T* y = c.out[0].as<T>();
  for_blocks(c.team, c.out[0].dims[0], rows_per_task(x.width),
             [=](int64_t begin, int64_t end) HWY_ATTR {
               for (int64_t r = begin; r < end; ++r) {
                 map(
                     0, x.width, y + r * x.width,
                     [](Vec gate, Vec up) HWY_ATTR { return hn::Mul(Act::value(gate), up); },
                     x.gate + r * x.stride, x.up + r * x.stride);
               }
             });
}

// dgate = dy up act'(gate), dup = dy act(gate)
template <typename T, typename Act>
void glu_dx_of(const KernelContext& c) {
  const T* dy = c.in[0].as<T>();
  Gated<T> x(c.in.subspan(1)), dx(c.out);
  for_blocks(c.team, c.in[0].dims[0], rows_per_task(x.width),
             [=](int64_t begin, int64_t end) HWY_ATTR {
               // One pass computes two results; map() would write only one.
               int64_t step = lanes();
               for (int64_t r = begin; r < end; ++r) {
                 for (int64_t k = 0; k < x.width; k += step) {
                   int64_t e = r * x.stride + k, count = std::min(step, x.width - k);
                   bool whole = count == step;
                   const T* from = dy + r * x.width + k;
                   Vec g = whole ? load(from) : load_part(from, count);
                   Vec gate = whole ? load(x.gate + e) : load_part(x.gate + e, count);
                   Vec up = whole ? load(x.up + e) : load_part(x.up + e, count);
                   Vec dgate = hn::Mul(hn::Mul(g, up), Act::slope(gate)),
                       dup = hn::Mul(g, Act::value(gate));
                   if (whole) {
                     store(dgate, dx.gate + e);
                     store(dup, dx.up + e);
                   } else {
                     store_part(dgate, dx.gate + e, count);
                     store_part(dup, dx.up + e, count);
                   }
                 }
               }
             });
}

// Calls f with the activation that attribute `act` names.
template <typename F>
void by_activation(const KernelContext& c, const F& f) {
  by_activation_among<Silu, GeluTanh, GeluErf, Gelu10, Relu, Tanh, Relu2, Laplace, Sigmoid,
                      QuickGelu, Softplus>(c.attrs.text("act"), f);
}

template <typename T>
void glu(const KernelContext& c) {
  by_activation(c, [&](auto act) { glu_of<T, decltype(act)>(c); });
}
template <typename T>
void glu_dx(const KernelContext& c) {
  by_activation(c, [&](auto act) { glu_dx_of<T, decltype(act)>(c); });
}

void add_glu(KernelRegistry& registry) {
  add_by_type(registry, "glu", []<typename T>() { return glu<T>; });
  add_by_type(registry, "glu_dx", []<typename T>() { return glu_dx<T>; });
}

}  // namespace ds::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
