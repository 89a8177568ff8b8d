#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "io/gguf.h"

namespace ds {

// These functions return the value of a key of the metadata, or nothing if the file lacks the key.
// Throw DS_ERROR_CORRUPT, naming the key, if the value is of another kind.
std::optional<int64_t> gguf_integer(const GgufHeader& header, const std::string& key);
// Also accepts an integer. The result is the shortest decimal number with the value's f32 bits, so
// that 1e-6 in f32 becomes 1e-6.
std::optional<double> gguf_number(const GgufHeader& header, const std::string& key);
std::optional<bool> gguf_flag(const GgufHeader& header, const std::string& key);
std::optional<std::string> gguf_text(const GgufHeader& header, const std::string& key);
// Returns a list of texts, integers or numbers; an empty list if the file lacks the key.
std::vector<std::string> gguf_texts(const GgufHeader& header, const std::string& key);
std::vector<int64_t> gguf_integers(const GgufHeader& header, const std::string& key);
std::vector<double> gguf_numbers(const GgufHeader& header, const std::string& key);

// Throws DS_ERROR_CORRUPT, naming the key, unless the integer is from `low` to `high`.
int64_t checked_gguf_integer(const std::string& key, int64_t value, int64_t low, int64_t high);

// Throws DS_ERROR_CORRUPT, naming the key, unless the number is finite and above 0.
double checked_gguf_positive(const std::string& key, double value);

// Returns what `read` returns. Puts the name of the file before the messages of errors that lack
// it.
template <typename Read>
auto naming_file(const std::string& path, const Read& read) {
  try {
    return read();
  } catch (const Error& error) {
    if (std::string_view(error.what()).starts_with(path)) throw;
    throw Error(error.status(), one_line(path + ": " + error.what()), error.details());
  }
}

}  // namespace ds
