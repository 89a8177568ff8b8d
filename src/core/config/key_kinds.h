#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/config/config.h"
#include "core/config/schema.h"
#include "core/config/values.h"

namespace ds {

// Counts of things: with these bounds, and those of check_sizes on their products, no size
// overflows.
inline constexpr double kMost = 2147483647, kMostElements = 1e15;
inline constexpr Limits positive{.low = 1, .high = kMost};
inline constexpr Limits count{.low = 0, .high = kMost};
inline constexpr Limits positive_elements{.low = 1, .high = kMostElements};
inline constexpr Limits elements{.low = 0, .high = kMostElements};
inline constexpr Limits most{.high = kMost};

// A key that is one field: `field` returns a reference into a Config.
template <typename Field>
Key key(std::string path, Field field, Limits limits = {}, std::string other = "") {
  auto set = [path, field, limits](Config& config, const Json& given) {
    read_value(path, given, limits, field(config));
  };
  auto get = [field](const Config& config) { return write_value(field(config)); };
  return {std::move(path), std::move(other), set, get};
}

template <typename Field>
Key bytes_key(std::string path, Field field, Limits limits = not_negative) {
  auto set = [path, field, limits](Config& config, const Json& given) {
    field(config) = parse_bytes(path, given, limits);
  };
  auto get = [field](const Config& config) {
    const int64_t value = field(config);
    return value < 0 ? Json() : Json(value);
  };
  return {std::move(path), "", set, get};
}

// The name of `supported` that was given, in any case. Refuses another one, telling DeepSpeed's
// other names from unknown ones.
std::string choose(const std::string& path, const Json& given,
                   const std::vector<std::string>& supported,
                   const std::vector<std::string>& foreign);

template <typename Field>
Key choice_key(std::string path, Field field, std::vector<std::string> supported,
               std::vector<std::string> foreign = {}) {
  auto set = [=](Config& config, const Json& given) {
    field(config) = choose(path, given, supported, foreign);
  };
  auto get = [field](const Config& config) {
    const std::string& value = field(config);
    return value.empty() ? Json() : Json(value);
  };
  return {path, "", set, get};
}

}  // namespace ds
