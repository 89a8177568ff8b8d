#include "core/base/dtype.h"
#include "core/config/config.h"
#include "core/config/core_sections.h"
#include "core/config/refuse.h"

namespace ds {
namespace {

const char* precision_key(DType compute) {
  return compute == DS_DTYPE_F16 ? "fp16.enabled" : "bf16.enabled";
}

// The smallest loss scale. Its inverse, by which gradients are multiplied, is finite in f32.
constexpr double kLeastScale = 1e-38;

// Returns the loss scaling of torch's GradScaler, which DeepSpeed uses with autocast in float16.
LossScaleConfig grad_scaler() {
  // GradScaler has no minimum. The minimum here, 2^-24, is the smallest positive f16.
  return {.window = 2000, .hysteresis = 1, .min_loss_scale = 0x1p-24, .from_first = true};
}

}  // namespace

// Replaces the loss scaling of fp16 by GradScaler's if only autocast needs one, and refuses
// combinations of scales and types that cannot work.
void complete_precision(Config& c) {
  if (c.scales_loss() && c.compute != DS_DTYPE_F16) {
    c.loss_scale = grad_scaler();
    for (auto& [path, origin] : c.origins) {
      if (path.starts_with("fp16.") && path != "fp16.enabled") origin = "derived";
    }
  }
  const bool dynamic = c.compute == DS_DTYPE_F16 && c.loss_scale.loss_scale == 0;
  if (dynamic && (c.loss_scale.window < 1 || c.loss_scale.min_loss_scale <= 0)) {
    const bool window = c.loss_scale.window < 1;
    refuse(window ? "fp16.loss_scale_window" : "fp16.min_loss_scale",
           "must be above 0 for a dynamic scale (fp16.loss_scale 0), got 0");
  }
  const double scale = dynamic ? c.loss_scale.min_loss_scale : c.loss_scale.loss_scale;
  if (c.compute == DS_DTYPE_F16 && scale < kLeastScale) {
    refuse(dynamic ? "fp16.min_loss_scale" : "fp16.loss_scale",
           "{} is below {}, under which gradients cannot be divided by it in f32", scale,
           kLeastScale);
  }
  // Autocast in the type of the parameters is allowed, because it still computes norms and losses
  // in f32.
  if (c.autocast.enabled && c.compute != DS_DTYPE_F32 &&
      parse_dtype(c.autocast.dtype) != c.compute) {
    refuse("torch_autocast.dtype", "\"{}\" excludes {}: true, which gives parameters another type",
           c.autocast.dtype == "f16" ? "float16" : "bfloat16", precision_key(c.compute));
  }
  if (c.grad_accum != DS_DTYPE_F32 && c.optimizer.compressed()) {
    refuse("data_types.grad_accum_dtype", "\"{}\" excludes {}, whose momentum needs sums in f32",
           c.grad_accum == DS_DTYPE_F16 ? "fp16" : "bf16", c.optimizer.type);
  }
  if (c.grad_accum != DS_DTYPE_F32 && c.reproducible) {
    refuse("data_types.grad_accum_dtype",
           "\"{}\" excludes reproducible: true, whose sums over micro-steps are the same for any "
           "number of ranks only in f32",
           c.grad_accum == DS_DTYPE_F16 ? "fp16" : "bf16");
  }
}

}  // namespace ds
