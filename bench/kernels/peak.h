#pragma once

namespace ds::bench {

// What one thread of this machine reaches with operands in registers, and with arrays far larger than its
// caches (bytes read plus written by a copy). Measured once, about 0.1 s each.
double peak_f32_flops();
double peak_bf16_flops();  // as f32 where there is no bf16 product instruction
double peak_bytes();

}  // namespace ds::bench
