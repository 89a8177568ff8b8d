#pragma once
#include <cstdint>

namespace ds {

// Whether the caller's stop flag [nullable] asks to end.
inline bool stop_asked(const volatile int32_t* stop) { return stop != nullptr && *stop != 0; }

}  // namespace ds
