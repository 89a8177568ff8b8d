#pragma once
#include "core/base/dtype.h"
#include "core/device/thread_team.h"
#include "core/program/cost.h"

namespace ds {

// The peak rates of all threads of a team together: floating-point operations per second with all
// operands in registers, and bytes per second of STREAM's triad (a = b + s c) on arrays of 128 MiB,
// on x86 with stores that bypass the caches.
struct Peak {
  // 0: not measured, because the device is a GPU or the processor has no fused multiply-add.
  double f32_flops = 0;
  // The rate of the fastest instructions for bf16: tiles (AMX), vectors of bf16 or vectors of f32.
  // 0: not measured, for the same reasons.
  double bf16_flops = 0;
  // 0: not measured, because the device is a GPU.
  double bytes = 0;

  // Returns the rate for this type of arithmetic.
  double flops(DType arithmetic) const;
  // Returns the least time of a launch (a roofline): the longer of the times that its flops and its
  // bytes take at the peak rates. A launch whose operands are in a cache may take less.
  double seconds(const Cost& cost) const;
};

// Returns the larger of both measurements for each rate: other processes may have slowed a
// measurement down, but nothing can make it too fast.
Peak best(const Peak& a, const Peak& b);

// Measures the rates. This takes about half a second and needs 384 MiB.
Peak measure_peak(ThreadTeam& team);

}  // namespace ds
