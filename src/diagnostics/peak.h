#pragma once
#include "core/base/dtype.h"
#include "core/device/thread_team.h"
#include "core/program/cost.h"

namespace ds {

// What the threads of a team reach together: floating-point operations a second with all operands
// in registers, and bytes a second of STREAM's triad (a = b + s c) on arrays of 128 MiB, stored
// past the caches.
struct Peak {
  double f32_flops = 0;  // 0: not measured (no fused multiply-add)
  double bf16_flops =
      0;             // of the fastest way: by tiles (AMX), by vectors of bf16 or by those of f32
  double bytes = 0;  // 0: not measured (another device)

  double flops(DType arithmetic) const;
  // The least time of a launch: its flops at their rate or its bytes at theirs, whichever takes
  // longer. What finds its operands in a cache may take less.
  double seconds(const Cost& cost) const;
};

// The larger of each: another program may have disturbed one measurement, and nothing makes one too
// fast.
Peak best(const Peak& a, const Peak& b);

// About half a second, and 384 MiB meanwhile.
Peak measure_peak(ThreadTeam& team);

}  // namespace ds
