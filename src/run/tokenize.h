#pragma once
#include <cstdint>
#include <string>

#include "core/config/config.h"

namespace ds {

// What `libds tokenize` does: config.data's text or jsonl as one token file at `path`, for
// data.format "tokens" of other runs. Nothing is held out and data.max_bytes does not count: memory
// is what the largest text file, or the longest line, needs. The file is a pure function of the
// data and the tokenizer. Returns a line that describes it. *stop [nullable]: non-zero ends it with
// DS_ERROR_USER.
std::string tokenize_data(const Config& config, const std::string& path,
                          const volatile int32_t* stop);

}  // namespace ds
