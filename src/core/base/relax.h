#pragma once

namespace ds {

// Tells the processor that the thread polls a word, so that it takes less from the core's other
// thread.
#if defined(__x86_64__)
inline void cpu_relax() { __builtin_ia32_pause(); }
#else
// arm64: waits about as long as x86-64's pause does; most cores do nothing for `yield`.
inline void cpu_relax() { asm volatile("isb"); }
#endif

}  // namespace ds
