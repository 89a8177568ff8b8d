#include "io/gguf_values.h"

#include <charconv>
#include <cmath>
#include <tuple>
#include <variant>

#include "core/base/error.h"

namespace ds {
namespace {

// Returns the elements of a value, or null if the file lacks the key. Throws unless they are of the
// C++ type Element, in a list or alone as `is_list` says.
template <typename Element>
const std::vector<Element>* elements_of(const GgufHeader& header, const std::string& key,
                                        bool is_list, const char* wanted) {
  const GgufValue* value = header.value(key);
  if (value == nullptr) return nullptr;
  const auto* elements = std::get_if<std::vector<Element>>(&value->elements);
  if (elements == nullptr || value->is_list != is_list)
    raise(DS_ERROR_CORRUPT, "key '{}' must be {}", key, wanted);
  return elements;
}

double shortest_decimal(double value) {
  if (!std::isfinite(value)) return value;
  char digits[64];
  const auto end = std::to_chars(digits, digits + sizeof(digits), static_cast<float>(value)).ptr;
  double out = 0;
  std::from_chars(digits, end, out);
  return out;
}

}  // namespace

std::optional<int64_t> gguf_integer(const GgufHeader& header, const std::string& key) {
  const auto* found = elements_of<int64_t>(header, key, false, "an integer");
  return found ? std::optional(found->front()) : std::nullopt;
}

std::optional<double> gguf_number(const GgufHeader& header, const std::string& key) {
  const GgufValue* value = header.value(key);
  if (value != nullptr && std::holds_alternative<std::vector<int64_t>>(value->elements))
    return static_cast<double>(*gguf_integer(header, key));
  const auto* found = elements_of<double>(header, key, false, "a number");
  return found ? std::optional(shortest_decimal(found->front())) : std::nullopt;
}

std::optional<bool> gguf_flag(const GgufHeader& header, const std::string& key) {
  const GgufValue* value = header.value(key);
  if (value != nullptr && value->kind != GgufKind::flag)
    raise(DS_ERROR_CORRUPT, "key '{}' must be a flag", key);
  const auto* found = elements_of<int64_t>(header, key, false, "a flag");
  return found ? std::optional(found->front() != 0) : std::nullopt;
}

std::optional<std::string> gguf_text(const GgufHeader& header, const std::string& key) {
  const auto* found = elements_of<std::string>(header, key, false, "a text");
  return found ? std::optional(found->front()) : std::nullopt;
}

std::vector<std::string> gguf_texts(const GgufHeader& header, const std::string& key) {
  const auto* found = elements_of<std::string>(header, key, true, "a list of texts");
  return found ? *found : std::vector<std::string>();
}

std::vector<int64_t> gguf_integers(const GgufHeader& header, const std::string& key) {
  const auto* found = elements_of<int64_t>(header, key, true, "a list of integers");
  return found ? *found : std::vector<int64_t>();
}

std::vector<double> gguf_numbers(const GgufHeader& header, const std::string& key) {
  const auto* found = elements_of<double>(header, key, true, "a list of numbers");
  return found ? *found : std::vector<double>();
}

int64_t checked_gguf_integer(const std::string& key, int64_t value, int64_t low, int64_t high) {
  if (value < low || value > high)
    raise(DS_ERROR_CORRUPT, "key '{}' must be from {} to {}, got {}", key, low, high, value);
  return value;
}

double checked_gguf_positive(const std::string& key, double value) {
  if (!std::isfinite(value) || value <= 0)
    raise(DS_ERROR_CORRUPT, "key '{}' must be a positive number, got {}", key, value);
  return value;
}

}  // namespace ds
