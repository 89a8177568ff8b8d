#pragma once
#include <cstdint>

// What tests ask of the tool, by dlsym in the file that NVTX_INJECTION64_PATH names.
extern "C" {

int64_t fake_tool_begun();            // ranges
int fake_tool_depth();                // of the calling thread: ranges that have begun and not ended
int fake_tool_saw(const char* part);  // 1: some range has it in its name
}
