#pragma once
#include <cstdint>

// Functions of the fake tool for tests, which find them by dlsym in the library that
// NVTX_INJECTION64_PATH names.
extern "C" {

// Returns the number of ranges that have begun.
int64_t fake_tool_begun();
// Returns the number of open ranges of the calling thread.
int fake_tool_depth();
// Returns 1 if the name of any range contains `part`, or else 0.
int fake_tool_saw(const char* part);
}
