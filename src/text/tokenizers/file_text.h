#pragma once
#include <string>

#include "core/base/json.h"

namespace ds::text {

// Reads a JSON file of a tokenizer, which may be in a GGUF file (io/gguf_tokenizer.h). Throws
// DS_ERROR_NOT_FOUND, DS_ERROR_IO, or DS_ERROR_CORRUPT naming line and column.
Json read_tokenizer_json(const std::string& path);
// Reads a file that must contain an object; throws DS_ERROR_CORRUPT for other content. Returns an
// empty object if the file is absent.
Json read_tokenizer_object(const std::string& path);

// Returns the folder of a file.
std::string folder_of(const std::string& path);

}  // namespace ds::text
