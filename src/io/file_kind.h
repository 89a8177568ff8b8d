#pragma once
#include <cstdint>
#include <string>

#include "core/base/content_kind.h"
#include "core/base/error.h"
#include "core/base/json.h"
#include "io/file.h"

namespace ds {

// What people give in place of a file or folder that is wanted. None of these throws anything but
// Error.

// The first bytes of a file, as many as content_kind() looks at.
std::string head_of(const std::string& path);

// For a reader that `fault` kept from reading the file: when the file is something else,
// DS_ERROR_CORRUPT that says what, and what to do; else the fault, with the file's name before it
// unless it begins with that. DS_ERROR_IO and DS_ERROR_NOT_FOUND go on as they are.
[[noreturn]] void raise_fault(const std::string& path, const Error& fault, Wanted wanted);

// A whole file of JSON. DS_ERROR_CORRUPT, as above, when it is none.
Json read_json(const std::string& path, int64_t limit = kMostText);

// A whole file of text. DS_ERROR_CORRUPT, as above, when it is something else that is known.
std::string read_text(const std::string& path, int64_t limit = kMostText);

// What is in the place of a model folder that lacks a file: "" or a text such as "; it is an
// adapter of PEFT:
// ...", for the end of a message.
std::string folder_hint(const std::string& path);

}  // namespace ds
