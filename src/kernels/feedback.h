#pragma once
#include <cstdint>

#include "kernels/kernel.h"

namespace ds {

// What an error of quantization does to the next elements (docs/reference/ops.md, `quantize`).
struct Feedback {
  bool on = false;     // out[0] is the error
  bool fresh = false;  // which counts as 0
  bool stays = false;  // and is not changed: a step that was skipped is run again
  float keep = 0;      // share of the error that stays
  float take = 0;      // share of the new one

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
