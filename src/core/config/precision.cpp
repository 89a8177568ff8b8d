#include "core/base/dtype.h"
#include "core/base/error.h"
#include "core/config/config.h"
#include "core/config/schema.h"

namespace ds {
namespace {

const char* precision_key(DType compute) {
  return compute == DS_DTYPE_F16 ? "fp16.enabled" : "bf16.enabled";
}

constexpr double kLeastScale = 1e-38;  // a bit above the least one whose inverse is a finite f32

// How torch's GradScaler moves, which DeepSpeed takes beside autocast in float16.
LossScaleConfig grad_scaler() {
  // It has no minimum: this one is where a loss of 1 is smallest in f16.
  return {.window = 2000, .hysteresis = 1, .min_loss_scale = 0x1p-24, .from_first = true};
}

}  // namespace

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
    raise(DS_ERROR_CONFIG,
          "{}: must be above 0 where fp16.loss_scale is 0, which means dynamic; got 0",
          KeyName(window ? "fp16.loss_scale_window" : "fp16.min_loss_scale"));
  }
  const double scale = dynamic ? c.loss_scale.min_loss_scale : c.loss_scale.loss_scale;
  if (c.compute == DS_DTYPE_F16 && scale < kLeastScale) {
    raise(DS_ERROR_CONFIG,
          "{}: {} is below {}, under which gradients cannot be divided by it in f32",
          KeyName(dynamic ? "fp16.min_loss_scale" : "fp16.loss_scale"), scale, kLeastScale);
  }
  // Beside bf16 parameters it still makes norms and losses in f32.
  if (c.autocast.enabled && c.compute != DS_DTYPE_F32 &&
      parse_dtype(c.autocast.dtype) != c.compute) {
    raise(DS_ERROR_CONFIG, "{}: \"{}\" excludes {}: true, with which parameters have another type",
          KeyName("torch_autocast.dtype"), c.autocast.dtype == "f16" ? "float16" : "bfloat16",
          precision_key(c.compute));
  }
  if (c.grad_accum != DS_DTYPE_F32 && c.optimizer.compressed()) {
    raise(DS_ERROR_CONFIG, "{}: \"{}\" excludes {}, whose momentum is moved by f32 sums",
          KeyName("data_types.grad_accum_dtype"), c.grad_accum == DS_DTYPE_F16 ? "fp16" : "bf16",
          c.optimizer.type);
  }
  if (c.grad_accum != DS_DTYPE_F32 && c.reproducible) {
    raise(DS_ERROR_CONFIG,
          "{}: \"{}\" excludes reproducible: true, whose sums over micro-steps are the same for "
          "any number of "
          "ranks only in f32",
          KeyName("data_types.grad_accum_dtype"), c.grad_accum == DS_DTYPE_F16 ? "fp16" : "bf16");
  }
}

}  // namespace ds
