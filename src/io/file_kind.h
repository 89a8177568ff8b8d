#pragma once
#include <cstdint>
#include <string>

#include "core/base/content_kind.h"
#include "core/base/error.h"
#include "core/base/json.h"
#include "io/file.h"

namespace ds {

// These functions recognize a file or folder that a user passed in place of the expected one. All
// their exceptions are Error.

// Returns the first bytes of a file, as many as content_kind() examines.
std::string head_of(const std::string& path);

// Rethrows `fault`, which a reader threw for a file, with a better message. If the file is of
// another known kind, throws DS_ERROR_CORRUPT saying which kind and what to do. Otherwise throws
// the message of `fault`, after the file's name unless it begins with that name, as
// DS_ERROR_UNSUPPORTED if that is its status, else as DS_ERROR_CORRUPT. Rethrows DS_ERROR_IO and
// DS_ERROR_NOT_FOUND unchanged.
[[noreturn]] void raise_fault(const std::string& path, const Error& fault, Wanted wanted);

// Reads a JSON file. If it is not JSON, or is an error message of the Hugging Face hub, throws as
// raise_fault() does.
Json read_json(const std::string& path, int64_t limit = kMostText);

// Reads a text file. Throws DS_ERROR_CORRUPT, saying what to do, if it is of another known kind.
std::string read_text(const std::string& path, int64_t limit = kMostText);

}  // namespace ds
