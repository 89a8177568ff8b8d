// Updates of elementwise optimizers, with the same bits as the CPU's kernels.
//
// The constants of a rule depend on the step's scalars, which are in the device's memory, so that
// one compiled program serves every step. A launch of one thread computes them in f64 and rounds
// each once, as docs/reference/ops.md says; then every thread of the update reads the same few
// floats. The power b^t, for which the CPU calls the C library, is computed here by repeated
// squaring in pairs of f64 (Dekker, "A floating-point technique for extending the available
// precision", 1971). Its error is far below the last bit of an f64, so 1 - b^t rounded to f32
// equals the CPU's. The pow of the device library uses fused multiply-adds, so it would give other
// bits.
//
// An update is bound by memory bandwidth: AdamW moves 30 bytes for each element with bf16
// parameters. A thread has four consecutive elements, so that a warp accesses whole lines of f32 by
// 16-byte accesses. Masters and states in f32 have separate entries, without the code for other
// types and stochastic rounding: on an H200, AdamW reached 0.88 of the bandwidth of a copy with
// that code, and reaches 1.0 without. Moments stored as codes (core/program/state_codes.h) are
// updated in blocks of 256 elements: a warp updates a block, eight elements per thread, and
// computes the block's scale from the maximum over its threads.
#include "core/program/state_codes.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/update.h"

namespace ds::cuda {
namespace {

// A number represented as the sum of two f64. The magnitude of `low` is at most half of the last
// bit of `high`.
struct Pair {
  double high, low;
};
// Splits x into two halves of 26 bits, whose products are exact (Dekker; the constant is 2^27 + 1).
DS_DEVICE Pair split(double x) {
  const double scaled = x * 134217729.0, high = scaled - (scaled - x);
  return {high, x - high};
}
DS_DEVICE Pair normal(double high, double low) {
  const double sum = high + low;
  return {sum, low - (sum - high)};
}
DS_DEVICE Pair times(Pair a, Pair b) {
  const double product = a.high * b.high;
  const Pair x = split(a.high), y = split(b.high);
  const double lost =
      ((x.high * y.high - product) + x.high * y.low + x.low * y.high) + x.low * y.low;
  return normal(product, lost + (a.high * b.low + a.low * b.high));
}
// Returns base^exponent for an integer exponent >= 0.
DS_DEVICE double power(double base, int64_t exponent) {
  Pair result{1, 0}, square{base, 0};
  for (; exponent > 0; exponent /= 2) {
    if (exponent % 2 != 0) result = times(result, square);
    square = times(square, square);
  }
  return result.high;
}

DS_DEVICE float narrowed(double x) { return static_cast<float>(x); }

// Rounds x to bf16 stochastically. The 16 random bits are added to the bits that are cut off, so x
// is rounded up with a probability equal to the part that is cut off (kernels/formulas/rounding.h).
DS_DEVICE uint16_t round_by(float x, uint32_t bits) {
  constexpr uint32_t kExponent = 0x7f800000u;
  const uint32_t u = bits_of(x);
  uint32_t sum = u + bits;
  // Infinity and NaN are kept, and a finite number must not become infinite.
  const bool special = (u & kExponent) == kExponent || (sum & kExponent) == kExponent;
  if (special) sum = x != x ? u | 0x400000u : u;
  return static_cast<uint16_t>(sum >> 16);
}
enum class Draw : int32_t { low = 0, high, mixed };
DS_DEVICE uint32_t draw_bits(uint32_t w, Draw draw) {
  return draw == Draw::low ? w & 0xffffu : draw == Draw::high ? w >> 16 : (w * 0x9E3779B9u) >> 16;
}
// Returns kParts[part] of kernels/formulas/rounding.h. An array that is indexed at run time would
// be placed in local memory.
DS_DEVICE uint32_t factor_of(uint32_t part) {
  const uint32_t a = part & 1 ? 0x85EBCA6Bu : 1u, b = part & 1 ? 0x27D4EB2Fu : 0xC2B2AE35u;
  const uint32_t c = part & 1 ? 0xCC9E2D51u : 0x165667B1u, d = part & 1 ? 0xE6546B65u : 0x1B873593u;
  const uint32_t low = part & 2 ? b : a, high = part & 2 ? d : c;
  return part & 4 ? high : low;
}
// The current block of four random words, for consecutive elements of a parameter.
struct Draws {
  Stream stream;
  Words words;
};
DS_DEVICE Draws draws_of(const UpdateConstants& c) {
  return {{c.seed ^ 0x726f756e64696e67ull, c.step, c.param, 0}, {}};
}
DS_DEVICE uint32_t draw(Draws& draws, int64_t element, bool first) {
  const uint64_t e = static_cast<uint64_t>(element), index = e / 512 * 64 + e % 64;
  if (first || index % 4 == 0) draws.words = words_of(draws.stream, index / 4);
  return word(draws.words, static_cast<uint32_t>(index % 4)) *
         factor_of(static_cast<uint32_t>(e % 512 / 64));
}
// Returns x rounded to the type of `o`, stochastically if `drawn`, as an f32.
DS_DEVICE float kept(const Operand& o, float x, bool drawn, uint32_t w, Draw draw) {
  if (o.dtype == DS_DTYPE_F32) return x;
  return widen(drawn ? round_by(x, draw_bits(w, draw)) : narrow(x, o.dtype), o.dtype);
}

using Few = Neighbours<kUpdated>;

// Applies next(grad, master, first state, second state) to this thread's elements, for operands of
// any type and any number of elements.
template <int states, typename F>
DS_DEVICE void update_any(const UpdateArgs& a, const F& next) {
  const UpdateConstants& c = *a.constants;
  const bool drawn = a.drawn != 0;
  each_few<kUpdated>(a.count, [&](int64_t i, int n) {
    // All loads are started before the constants are read, even though a skipped step does not need
    // them.
    Few p = load<kUpdated>(a.master, i, n, a.wide);
    const Few g = load<kUpdated>(a.grad, i, n, a.wide);
    Few s0 = load<kUpdated>(a.state[0], i, n, a.wide),
        s1 = states == 2 ? load<kUpdated>(a.state[1], i, n, a.wide) : Few{};
    if (c.skip != 0) {
      if (!a.same) store(a.param, i, n, a.wide, p);
      return;
    }
    Draws draws = draws_of(c);
#pragma unroll
    for (int k = 0; k < kUpdated; ++k) {
      next(g.v[k], p.v[k], s0.v[k], s1.v[k]);
      const uint32_t w = drawn ? draw(draws, c.element + i + k, k == 0) : 0;
      p.v[k] = kept(a.master, p.v[k], drawn, w, Draw::mixed);
      s0.v[k] = kept(a.state[0], s0.v[k], drawn, w, Draw::low);
      if (states == 2) s1.v[k] = kept(a.state[1], s1.v[k], drawn, w, Draw::high);
    }
    store(a.master, i, n, a.wide, p);
    store(a.state[0], i, n, a.wide, s0);
    if (states == 2) store(a.state[1], i, n, a.wide, s1);
    if (!a.same) store(a.param, i, n, a.wide, p);
  });
}
// Does the work of update_any() faster, for the operands that is_plain() of update.cpp accepts:
// masters and states are f32, so storing them needs no rounding, and all accesses are whole
// vectors.
template <int states, typename F>
DS_DEVICE void update(const UpdateArgs& a, const F& next) {
  const UpdateConstants& c = *a.constants;
  each_few<kUpdated>(a.count, [&](int64_t i, int n) {
    const auto at = [&](const Operand& o) { return static_cast<float*>(o.data) + i; };
    Few p = load_floats<kUpdated>(at(a.master)), s0 = load_floats<kUpdated>(at(a.state[0])),
        s1 = states == 2 ? load_floats<kUpdated>(at(a.state[1])) : Few{};
    const Few g = load<kUpdated>(a.grad, i, n, true);
    if (c.skip == 0) {
#pragma unroll
      for (int k = 0; k < kUpdated; ++k) next(g.v[k], p.v[k], s0.v[k], s1.v[k]);
      store_floats(at(a.master), p);
      store_floats(at(a.state[0]), s0);
      if (states == 2) store_floats(at(a.state[1]), s1);
    }
    if (!a.same) store(a.param, i, n, true, p);
  });
}

// The constants of AdamW, in the order in which update_constants writes them. `rate` and `f`
// include the bias corrections; `decay` is the factor of decoupled weight decay, and `penalty` is
// the factor of L2 regularization.
struct Adam {
  float scale, b1, one_b1, b2, one_b2, rate, f, eps, decay, penalty;
};
DS_DEVICE Adam adam_of(const UpdateConstants& c) {
  const float* v = c.v;
  return {v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7], v[8], v[9]};
}
DS_DEVICE void renew(const Adam& a, float grad, float& p, float& m, float& s) {
  p = p * a.decay;
  float g = grad * a.scale;
  if (a.penalty != 0) g = g + a.penalty * p;
  m = a.b1 * m + a.one_b1 * g;
  s = a.b2 * s + a.one_b2 * (g * g);
  p = p - (a.rate * m) / (sqrtf(s * a.f) + a.eps);
}

// Each of the following functions returns the rule of an optimizer, as a function next(grad,
// master, first state, second state). Constants are read from v in the order in which
// update_constants writes them.
DS_DEVICE auto adamw_of(const UpdateArgs& a) {
  const Adam adam = adam_of(*a.constants);
  return [adam](float grad, float& p, float& m, float& s) { renew(adam, grad, p, m, s); };
}
// `flag` is the attribute nesterov.
DS_DEVICE auto sgd_of(const UpdateArgs& a) {
  const float* v = a.constants->v;
  const float scale = v[0], rate = v[1], momentum = v[2], wd = v[3], share = v[4];
  const bool nesterov = a.flag != 0;
  return [=](float grad, float& p, float& buffer, float&) {
    const float g = grad * scale + wd * p;
    buffer = momentum * buffer + share * g;
    p = p - rate * (nesterov ? g + momentum * buffer : buffer);
  };
}
DS_DEVICE auto lion_of(const UpdateArgs& a) {
  const float* v = a.constants->v;
  const float scale = v[0], rate = v[1], b1 = v[2], one_b1 = v[3], b2 = v[4], one_b2 = v[5],
              keep = v[6];
  return [=](float grad, float& p, float& m, float&) {
    const float g = grad * scale, direction = b1 * m + one_b1 * g;
    p = p * keep - copysignf(rate, direction);
    m = b2 * m + one_b2 * g;
  };
}
DS_DEVICE auto adagrad_of(const UpdateArgs& a) {
  const float* v = a.constants->v;
  const float scale = v[0], eps = v[1], wd = v[2], rate = v[3], initial = v[4];
  return [=](float grad, float& p, float& sum, float&) {
    const float g = grad * scale + wd * p;
    sum = (sum + initial) + g * g;
    p = p - (rate * g) / (sqrtf(sum) + eps);
  };
}

// Returns the scale of a block of codes, from the largest magnitude among the warp's elements.
// Magnitudes are compared as bit patterns, which have the same order.
DS_DEVICE uint8_t scale_of(const Eight& x) {
  uint32_t largest = 0;
#pragma unroll
  for (int k = 0; k < 8; ++k) largest = Larger::of(largest, bits_of(x.v[k]) & 0x7fffffffu);
  return state_scale(over_warp<Larger>(largest));
}
// The codes of eight consecutive elements. In memory they are 8-byte aligned.
struct EightCodes {
  uint32_t word[2];
};
DS_DEVICE EightCodes load(const uint8_t* from) {
  const uint2 u = *reinterpret_cast<const uint2*>(from);
  return {{u.x, u.y}};
}
DS_DEVICE void store(uint8_t* to, const EightCodes& c) {
  *reinterpret_cast<uint2*>(to) = make_uint2(c.word[0], c.word[1]);
}
DS_DEVICE Eight decode(const EightCodes& c, StateCodes kind, uint8_t scale) {
  const StateScale s(kind, scale);
  Eight e;
#pragma unroll
  for (int k = 0; k < 8; ++k)
    e.v[k] = decode_state(static_cast<uint8_t>(c.word[k / 4] >> (k % 4 * 8)), kind, s);
  return e;
}
DS_DEVICE EightCodes encode(const Eight& x, StateCodes kind, uint8_t scale, const uint32_t* drawn) {
  const StateScale s(kind, scale);
  EightCodes c{};
#pragma unroll
  for (int k = 0; k < 8; ++k)
    c.word[k / 4] |= static_cast<uint32_t>(encode_state(x.v[k], kind, s, drawn[k])) << (k % 4 * 8);
  return c;
}

}  // namespace

// One thread computes a rule's constants. Formulas and the order of operations are the same as in
// the CPU's kernels, so that each constant has the same bits.
DS_LOOP_KERNEL(update_constants, ConstantsArgs) {
  if (thread_number() != 0) return;
  const StepScalars& s = *a.scalars;
  const GroupScalars g = a.own_group ? a.group : s.group;
  const int64_t updates = s.updates - a.missed;
  UpdateConstants c{};
  c.seed = s.seed;
  c.step = static_cast<uint32_t>(s.step);
  c.param = static_cast<uint32_t>(a.param);
  c.element = a.element;
  c.skip = s.skip;
  float* v = c.v;
  switch (a.rule) {
    // The flags are own_rate, l2 and bias_correction.
    case Rule::adamw: {
      const double lr = a.flag[0] ? g.adam_lr : g.lr;
      const bool l2 = a.flag[1] != 0, corrected = a.flag[2] != 0;
      v[0] = narrowed(s.grad_scale);
      v[1] = narrowed(g.beta1), v[2] = narrowed(1 - g.beta1);
      v[3] = narrowed(g.beta2), v[4] = narrowed(1 - g.beta2);
      v[5] = narrowed(corrected ? lr / (1 - power(g.beta1, updates + 1)) : lr);
      v[6] = narrowed(corrected ? 1 / (1 - power(g.beta2, updates + 1)) : 1);
      v[7] = narrowed(g.eps);
      v[8] = l2 ? 1.0f : narrowed(1 - lr * g.weight_decay);
      v[9] = l2 ? narrowed(g.weight_decay) : 0.0f;
      break;
    }
    // flag[0] is maximize. real[0] is dampening, which the first update does not apply.
    case Rule::sgd: {
      v[0] = narrowed(a.flag[0] ? -s.grad_scale : s.grad_scale);
      v[1] = narrowed(g.lr), v[2] = narrowed(g.momentum), v[3] = narrowed(g.weight_decay);
      v[4] = updates != 0 && v[2] != 0 ? narrowed(1 - a.real[0]) : 1.0f;
      break;
    }
    case Rule::lion:
      v[0] = narrowed(s.grad_scale), v[1] = narrowed(g.lr);
      v[2] = narrowed(g.beta1), v[3] = narrowed(1 - g.beta1);
      v[4] = narrowed(g.beta2), v[5] = narrowed(1 - g.beta2);
      v[6] = narrowed(1 - g.lr * g.weight_decay);
      break;
    // The reals are lr_decay and initial.
    case Rule::adagrad:
      v[0] = narrowed(s.grad_scale), v[1] = narrowed(g.eps), v[2] = narrowed(g.weight_decay);
      v[3] = narrowed(g.lr / (1 + static_cast<double>(updates) * a.real[0]));
      v[4] = updates == 0 ? narrowed(a.real[1]) : 0.0f;
      break;
    // real[0] is ranks, and flag[0] is mean.
    case Rule::momentum:
    case Rule::own_gradient:
      v[0] = a.flag[0] ? 1.0f : narrowed(s.grad_scale * a.real[0]);
      v[1] = narrowed(g.beta1), v[2] = narrowed(1 - g.beta1);
      break;
    case Rule::muon_momentum:
      v[0] = narrowed(s.grad_scale), v[1] = narrowed(g.momentum), v[2] = narrowed(1 - g.momentum);
      break;
    // flag[0] is bias_correction.
    case Rule::lamb: {
      v[0] = narrowed(s.grad_scale);
      v[1] = narrowed(g.beta1), v[2] = narrowed(1 - g.beta1);
      v[3] = narrowed(g.beta2), v[4] = narrowed(1 - g.beta2);
      v[5] = narrowed(g.eps), v[6] = narrowed(g.weight_decay);
      double correction = 1;
      if (a.flag[0])
        correction = sqrt(1 - power(g.beta2, updates + 1)) / (1 - power(g.beta1, updates + 1));
      v[7] = narrowed(g.lr * correction);
      break;
    }
    case Rule::muon:
      v[0] = narrowed(g.lr), v[1] = narrowed(1 - g.lr * g.weight_decay);
      break;
    default:
      break;
  }
  *a.to = c;
}

DS_LOOP_KERNEL(adamw, UpdateArgs) { update<2>(a, adamw_of(a)); }
DS_LOOP_KERNEL(adamw_any, UpdateArgs) { update_any<2>(a, adamw_of(a)); }

// AdamW with moments stored as codes: a warp decodes a block, updates it, and encodes it with its
// new scales.
DS_BLOCK_KERNEL(adamw_codes, CodesUpdateArgs, kCodesUpdateThreads) {
  const int64_t block = thread_number() / kWarp;
  if (block >= a.blocks) return;
  const UpdateConstants& c = *a.constants;
  const int64_t i = thread_number() * 8;
  Eight p = load(a.master, i, 8, a.wide);
  if (c.skip != 0) {
    if (!a.same) store(a.param, i, 8, a.wide, p);
    return;
  }
  const Adam adam = adam_of(c);
  const bool drawn = a.drawn != 0;
  const Eight g = load(a.grad, i, 8, a.wide);
  Eight m = decode(load(a.mean_codes + i), StateCodes::with_sign, a.mean_scales[block]);
  Eight s = decode(load(a.square_codes + i), StateCodes::squares, a.square_scales[block]);
  uint32_t mean_draws[8], square_draws[8];
  Draws draws = draws_of(c);
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    renew(adam, g.v[k], p.v[k], m.v[k], s.v[k]);
    const uint32_t w = drawn ? draw(draws, c.element + i + k, k == 0) : 0;
    // Both moments use the same word: 20 bits each, with eight bits in common
    // (kernels/formulas/adam_step.h).
    mean_draws[k] = drawn ? w & 0xfffffu : kToNearest;
    square_draws[k] = drawn ? w >> 12 : kToNearest;
    p.v[k] = kept(a.master, p.v[k], drawn, w, Draw::mixed);
  }
  store(a.master, i, 8, a.wide, p);
  if (!a.same) store(a.param, i, 8, a.wide, p);
  // The maximum over the warp in scale_of() synchronizes the threads, so all of them have read the
  // old scales before these are overwritten.
  const uint8_t mean_scale = scale_of(m), square_scale = scale_of(s);
  store(a.mean_codes + i, encode(m, StateCodes::with_sign, mean_scale, mean_draws));
  store(a.square_codes + i, encode(s, StateCodes::squares, square_scale, square_draws));
  if (threadIdx.x % kWarp != 0) return;
  a.mean_scales[block] = mean_scale;
  a.square_scales[block] = square_scale;
}

DS_LOOP_KERNEL(sgd, UpdateArgs) { update<1>(a, sgd_of(a)); }
DS_LOOP_KERNEL(sgd_any, UpdateArgs) { update_any<1>(a, sgd_of(a)); }

DS_LOOP_KERNEL(lion, UpdateArgs) { update<1>(a, lion_of(a)); }
DS_LOOP_KERNEL(lion_any, UpdateArgs) { update_any<1>(a, lion_of(a)); }

DS_LOOP_KERNEL(adagrad, UpdateArgs) { update<1>(a, adagrad_of(a)); }
DS_LOOP_KERNEL(adagrad_any, UpdateArgs) { update_any<1>(a, adagrad_of(a)); }

// m = b1 m + (1 - b1) g, where `master` is m.
DS_LOOP_KERNEL(momentum, UpdateArgs) {
  const float* v = a.constants->v;
  if (a.constants->skip != 0) return;
  each_few<kUpdated>(a.count, [&](int64_t i, int n) {
    const Few grad = load<kUpdated>(a.grad, i, n, a.wide);
    Few m = load<kUpdated>(a.master, i, n, a.wide);
#pragma unroll
    for (int k = 0; k < kUpdated; ++k) m.v[k] = v[1] * m.v[k] + v[2] * (grad.v[k] * v[0]);
    store(a.master, i, n, a.wide, m);
  });
}

// Stores the scaled gradient of this rank in `param`, or zeros in a skipped step.
DS_LOOP_KERNEL(own_gradient, UpdateArgs) {
  const UpdateConstants& c = *a.constants;
  each_few<kUpdated>(a.count, [&](int64_t i, int n) {
    Few g = load<kUpdated>(a.grad, i, n, a.wide);
#pragma unroll
    for (int k = 0; k < kUpdated; ++k) g.v[k] = c.skip ? 0.0f : g.v[k] * c.v[0];
    store(a.param, i, n, a.wide, g);
  });
}

// Nesterov momentum: `master` is m, and `param` receives the look-ahead gradient, or zeros in a
// skipped step.
DS_LOOP_KERNEL(muon_momentum, UpdateArgs) {
  const UpdateConstants& c = *a.constants;
  each_few<kUpdated>(a.count, [&](int64_t i, int n) {
    if (c.skip) return store(a.param, i, n, a.wide, Few{});
    const Few grad = load<kUpdated>(a.grad, i, n, a.wide);
    Few m = load<kUpdated>(a.master, i, n, a.wide), ahead;
#pragma unroll
    for (int k = 0; k < kUpdated; ++k) {
      const float g = c.v[2] * (grad.v[k] * c.v[0]);
      m.v[k] = c.v[1] * m.v[k] + g;
      ahead.v[k] = c.v[1] * m.v[k] + g;
    }
    store(a.master, i, n, a.wide, m);
    store(a.param, i, n, a.wide, ahead);
  });
}

// p = p (1 - lr wd) - lr step, where `grad` is the orthogonalized step.
DS_LOOP_KERNEL(muon, UpdateArgs) {
  const UpdateConstants& c = *a.constants;
  each_few<kUpdated>(a.count, [&](int64_t i, int n) {
    Few p = load<kUpdated>(a.master, i, n, a.wide);
    if (!c.skip) {
      const Few step = load<kUpdated>(a.grad, i, n, a.wide);
#pragma unroll
      for (int k = 0; k < kUpdated; ++k) p.v[k] = p.v[k] * c.v[1] - c.v[0] * step.v[k];
      store(a.master, i, n, a.wide, p);
    }
    if (!a.same) store(a.param, i, n, a.wide, p);
  });
}

}  // namespace ds::cuda
