// Quantization of the gradients and parameters that ranks exchange, with error feedback (Seide et
// al., "1-Bit Stochastic Gradient Descent", 2014). A granule of 256 elements becomes a scale (f32)
// and codes of 8 or 4 bits: code * scale differs from the element by at most half a scale. The
// scale is the largest magnitude divided by the largest code. core/program/codes.h has the layout.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>

#include "core/program/codes.h"
#include "kernels/formulas/feedback.h"
#include "kernels/ref/ref.h"

namespace ds::ref {
namespace {

// Writes a scale, whose address need not be aligned, and returns the byte after it.
uint8_t* put_scale(uint8_t* codes, float scale) {
  std::memcpy(codes, &scale, sizeof scale);
  return codes + sizeof scale;
}

// Returns the scale of a granule, or 0 if it contains a NaN or an infinity.
float scale_of(const float* x, int64_t bits) {
  float top = 0;
  for (int64_t e = 0; e < kGranule; ++e) {
    if (!std::isfinite(x[e])) return 0;
    top = std::max(top, std::abs(x[e]));
  }
  return std::max(top / static_cast<float>(largest_code(bits)), kLeastScale);
}

// Returns the code of x, rounded to nearest, ties to even. `inverse` is 1 / scale.
int code_of(float x, float inverse) { return static_cast<int>(std::nearbyint(x * inverse)); }

// Writes the scale and the codes of x. If errors are fed back, x already includes the old error.
void encode(const float* x, float scale, int64_t bits, uint8_t* codes) {
  float inverse = 1 / scale;
  codes = put_scale(codes, scale);
  if (bits == 8) {
    for (int64_t e = 0; e < kGranule; ++e) codes[e] = static_cast<uint8_t>(code_of(x[e], inverse));
    return;
  }
  for (int64_t e = 0; e < kGranule / 2; ++e) {
    // With 4 bits, elements e and e + 128 share a byte.
    int low = code_of(x[e], inverse) & 15, high = code_of(x[e + kGranule / 2], inverse) & 15;
    codes[e] = static_cast<uint8_t>(low | high << 4);
  }
}

// Writes the next error of a granule: a share of the old error `held` plus a share of the
// quantization loss. Clears it if the granule has a NaN or an infinity.
void put_error(const float* value, const float* held, float scale, const Feedback& feedback,
               float* error) {
  for (int64_t e = 0; e < kGranule; ++e) {
    error[e] = 0;
    if (scale == 0) continue;
    float lost = value[e] - static_cast<float>(code_of(value[e], 1 / scale)) * scale;
    error[e] = feedback.keep * held[e] + feedback.take * lost;
  }
}

// The operand is x. The results are the error, if errors are fed back, and the codes. A granule
// with a NaN or an infinity gets a NaN scale, so that the receivers decode NaN.
template <typename T>
void quantize(const KernelContext& c) {
  const T* x = c.in[0].as<T>();
  const Feedback feedback(c);
  float* error = c.out[0].as<float>();
  auto* codes = c.out.back().as<uint8_t>();
  int64_t bits = c.attrs.integer("bits");
  for (int64_t g = 0; g < c.in[0].numel() / kGranule; ++g) {
    float value[kGranule], held[kGranule] = {};
    auto given = [&](int64_t e) { return static_cast<float>(get(x, g * kGranule + e)); };
    // A granule of zeros sends zeros. Its error is kept for a later step, unless this step resets
    // errors.
    bool idle = true;
    for (int64_t e = 0; e < kGranule; ++e) idle = idle && given(e) == 0;
    bool fed = feedback.on && !feedback.fresh && !idle;
    if (fed) std::copy_n(error + g * kGranule, kGranule, held);
    for (int64_t e = 0; e < kGranule; ++e) value[e] = given(e) + held[e];
    uint8_t* at = codes + g * granule_code_bytes(bits);
    float scale = scale_of(value, bits);
    if (scale == 0) {
      std::fill_n(put_scale(at, std::nanf("")), kGranule * bits / 8, uint8_t{0});
    } else {
      encode(value, scale, bits, at);
    }
    if (feedback.on && !feedback.stays && (fed || feedback.fresh))
      put_error(value, held, scale, feedback, error + g * kGranule);
  }
}

// Decodes element e of a granule.
float decode(const uint8_t* codes, int64_t bits, int64_t e) {
  float scale;
  std::memcpy(&scale, codes, sizeof scale);
  codes += sizeof scale;
  if (bits == 8) return static_cast<float>(static_cast<int8_t>(codes[e])) * scale;
  int64_t half = kGranule / 2;
  int nibble = e < half ? codes[e] & 15 : codes[e - half] >> 4;
  return static_cast<float>(nibble < 8 ? nibble : nibble - 16) * scale;
}

// y = the decoded elements.
template <typename T>
void dequantize(const KernelContext& c) {
  const auto* codes = c.in[0].as<uint8_t>();
  T* y = c.out[0].as<T>();
  int64_t bits = c.attrs.integer("bits");
  for (int64_t e = 0; e < c.out[0].numel(); ++e)
    y[e] = static_cast<T>(decode(codes + code_bytes(e, bits), bits, e % kGranule));
}

// y = the sum over ranks of the decoded elements, in the order of an all-reduce (tree_sum).
void dequantize_sum(const KernelContext& c) {
  const auto* codes = c.in[0].as<uint8_t>();
  float* y = c.out[0].as<float>();
  int64_t bits = c.attrs.integer("bits"), ranks = c.attrs.integer("ranks"),
          numel = c.out[0].numel();
  std::span<float> x = scratch_of<float>(c, ranks);
  for (int64_t e = 0; e < numel; ++e) {
    for (int64_t r = 0; r < ranks; ++r) {
      const uint8_t* granule = codes + code_bytes(r * numel, bits) + code_bytes(e, bits);
      x[static_cast<size_t>(r)] = decode(granule, bits, e % kGranule);
    }
    y[e] = tree_sum(x);
  }
}

}  // namespace

void add_quantize(KernelRegistry& registry) {
  add_by_type(registry, "quantize", []<typename T>() { return quantize<T>; });
  add_by_type<out_type<0>>(registry, "dequantize", []<typename T>() { return dequantize<T>; });
  add_kernel(registry, "dequantize_sum", dequantize_sum);
}

}  // namespace ds::ref
