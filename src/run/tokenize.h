#pragma once
#include <cstdint>
#include <string>

#include "core/config/config.h"
#include "data/keys.h"

namespace ds {

// Carries out `libds tokenize`: writes text or jsonl as one token file at `path`, for other runs
// with data.format "tokens". Nothing is held out and data.max_bytes is ignored; the memory needed
// is as large as the largest text file or the longest line. The file depends only on the data and
// the tokenizer. Returns a line that describes it. Throws DS_ERROR_USER if *stop [nullable] becomes
// non-zero.
std::string tokenize_data(const DataKeys& data, const std::string& path,
                          const volatile int32_t* stop);

}  // namespace ds
