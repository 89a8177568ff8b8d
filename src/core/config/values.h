#pragma once
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "core/base/json.h"
#include "core/base/tier.h"

namespace ds {

// The range of a number: low <= x <= high and x < below.
struct Limits {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  double below = std::numeric_limits<double>::infinity();
};

inline constexpr Limits not_negative{.low = 0};
inline constexpr Limits decay{.low = 0, .below = 1};

// Reads the value of key `path` as a boolean, a number, a text, a tier, or texts (an array or one
// text). Throws DS_ERROR_CONFIG naming the path if the value has another kind or is outside the
// limits. Integers may be written as reals with an integral value (5e8), and booleans as 0 and 1
// or, as truth_at() says, as words. Booleans and strings are never numbers.
template <typename T>
T read_value(const std::string& path, const Json& given, const Limits& limits = {});

// Reads a text that must not be empty. Throws DS_ERROR_CONFIG naming the path.
std::string read_nonempty(const std::string& path, const Json& given);

// Reads a number of bytes, an integer or a text like "2GiB". Throws DS_ERROR_CONFIG naming the
// path.
int64_t parse_bytes(const std::string& path, const Json& given, const Limits& limits = {.low = 0});

// Returns the truth value of a boolean, or of the numbers 0 and 1, which DeepSpeed accepts as
// booleans. Returns nothing for any other value.
std::optional<bool> truth_of(const Json& given);
// Like truth_of(), but in sections that DeepSpeed reads with a pydantic class, words such as
// "true", "yes", "on" and their opposites also count as booleans. In other sections DeepSpeed
// treats any text as true; this function returns nothing for it.
std::optional<bool> truth_at(const std::string& path, const Json& given);

// Returns a value in the form that configurations use.
template <typename T>
Json write_value(const T& value) {
  if constexpr (std::is_same_v<T, Tier>) {
    return value == Tier::device ? "none" : value == Tier::host ? "cpu" : "nvme";
  } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
    return Json::Array(value.begin(), value.end());
  } else if constexpr (std::is_same_v<T, std::optional<double>>) {
    return value ? Json(*value) : Json();
  } else if constexpr (std::is_same_v<T, uint64_t>) {
    return static_cast<int64_t>(value);
  } else {
    return value;
  }
}

}  // namespace ds
