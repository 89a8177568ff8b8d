#pragma once

namespace ds {

// Tells the processor that this thread polls, so that the other hardware thread of its core gets
// more of the core.
#if defined(__x86_64__)
inline void cpu_relax() { __builtin_ia32_pause(); }
#else
// On arm64, `isb` takes about as long as x86-64's pause; `yield` does nothing on most cores.
inline void cpu_relax() { asm volatile("isb"); }
#endif

}  // namespace ds
