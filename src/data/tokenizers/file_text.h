#pragma once
#include <string>

#include "core/base/json.h"

namespace ds {

// A tokenizer file as a whole: a regular file of at most 256 MiB. DS_ERROR_NOT_FOUND, _IO, _CORRUPT.
std::string read_tokenizer_file(const std::string& path);
Json read_tokenizer_json(const std::string& path);  // DS_ERROR_CORRUPT names line and column

}  // namespace ds
