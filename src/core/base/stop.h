#pragma once
#include <cstdint>

namespace ds {

// Returns whether the caller has set the stop flag [nullable] that ends a long call.
inline bool stop_asked(const volatile int32_t* stop) { return stop != nullptr && *stop != 0; }

}  // namespace ds
