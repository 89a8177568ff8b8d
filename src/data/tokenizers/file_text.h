#pragma once
#include <string>

#include "core/base/json.h"

namespace ds {

// A tokenizer's JSON file. DS_ERROR_NOT_FOUND, _IO, _CORRUPT naming line and column.
Json read_tokenizer_json(const std::string& path);

}  // namespace ds
