#pragma once
#include <cstdint>

#include "kernels/kernel.h"

namespace ds {

// How a quantization feeds back its error, that is, adds it to the values that are quantized next
// (docs/reference/ops.md, `quantize`).
struct Feedback {
  // Whether errors are fed back. out[0] is then the error.
  bool on = false;
  // Whether the error is reset: this step starts from an error of 0.
  bool fresh = false;
  // Whether the error stays as it is, because the step is skipped.
  bool stays = false;
  // The next error is keep times the old error plus take times the loss of this quantization.
  float keep = 0;
  float take = 0;

  explicit Feedback(const KernelContext& c) : on(c.out.size() == 2) {
    if (!on) return;
    int64_t reset = c.attrs.integer_or("reset", 0);
    stays = c.scalars.skip != 0;
    double beta = c.attrs.real("err_beta");
    fresh = reset > 0 && c.scalars.step % reset == 0;
    keep = static_cast<float>(beta);
    take = static_cast<float>(1 - beta);
  }
};

}  // namespace ds
