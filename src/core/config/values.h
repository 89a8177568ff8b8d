#pragma once
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "core/base/tier.h"

namespace ds {

// Range of a number, closed but for `below`.
struct Limits {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  double below = std::numeric_limits<double>::infinity();
};

inline constexpr Limits not_negative{.low = 0};
inline constexpr Limits decay{.low = 0, .below = 1};

// Sets `out` from the value given for key `path`; throws DS_ERROR_CONFIG naming the path when the
// value has another kind or leaves the limits. Integers may be written as reals with an integral
// value (5e8), and booleans as 0 and 1, in sections of classes also as words; booleans and strings
// are never numbers.
void read_value(const std::string& path, const Json& given, const Limits& limits, bool& out);
void read_value(const std::string& path, const Json& given, const Limits& limits, int& out);
void read_value(const std::string& path, const Json& given, const Limits& limits, int64_t& out);
void read_value(const std::string& path, const Json& given, const Limits& limits, uint64_t& out);
void read_value(const std::string& path, const Json& given, const Limits& limits, double& out);
void read_value(const std::string& path, const Json& given, const Limits& limits, std::string& out);
void read_value(const std::string& path, const Json& given, const Limits& limits, Tier& out);
void read_value(const std::string& path, const Json& given, const Limits& limits,
                std::vector<std::string>& out);  // an array of strings, or one string

// Bytes of "2GiB" and the like; throws DS_ERROR_CONFIG naming the path.
int64_t parse_bytes(const std::string& path, const Json& given, const Limits& limits = {.low = 0});

// A boolean, or the number 0 or 1, which DeepSpeed takes for one.
std::optional<bool> truth_of(const Json& given);
// The same for a key of a section that DeepSpeed reads with a pydantic class, where "true", "yes",
// "on" and their opposites are booleans, too. In other sections any text is true to DeepSpeed, and
// nothing here.
std::optional<bool> truth_at(const std::string& path, const Json& given);

// The config spelling of a value.
Json write_value(bool value);
Json write_value(int value);
Json write_value(int64_t value);
Json write_value(uint64_t value);
Json write_value(double value);
Json write_value(const std::string& value);
Json write_value(Tier value);
Json write_value(const std::vector<std::string>& value);

}  // namespace ds
