// Reads values by type.
//
// A configuration is written by hand, so reading is strict: a value of another kind is refused with
// the kind that was expected, and never converted by guess. The exceptions are those that DeepSpeed
// makes, because its files rely on them: reals for integers, 0 and 1 for booleans, and words for
// booleans in the sections that it reads with pydantic.
#include "core/config/values.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>

#include "core/base/ascii.h"
#include "core/config/refuse.h"

namespace ds {
namespace {

[[noreturn]] void wrong_kind(const std::string& path, const char* expected, const Json& given) {
  const bool is_auto = given.is_string() && given.string() == "auto";
  refuse(path, "expected {}, got {}{}", expected, given.dump(),
         is_auto ? " (a host framework fills \"auto\" in; here a value is needed)" : "");
}

std::string number_text(double x) {
  return std::fabs(x) < 1e15 && x == std::floor(x) ? std::to_string(static_cast<int64_t>(x))
                                                   : fmt::format("{}", x);
}

// Returns " (it must be 0 to 3)" for a range with two ends. If it has only one, the message already
// names it.
std::string range_text(const Limits& limits) {
  if (std::isinf(limits.low) || (std::isinf(limits.high) && std::isinf(limits.below))) return "";
  const bool open = limits.below <= limits.high;
  return fmt::format(" (it must be {} {} {})", number_text(limits.low),
                     open ? "or more, and below" : "to",
                     number_text(open ? limits.below : limits.high));
}

void check_limits(const std::string& path, double x, const Limits& limits) {
  auto leaves = [&](const char* relation, double limit) {
    refuse(path, "{} is {} {}{}", number_text(x), relation, number_text(limit), range_text(limits));
  };
  if (x < limits.low) leaves("below", limits.low);
  if (x > limits.high) leaves("above", limits.high);
  if (x >= limits.below) leaves("not below", limits.below);
}

// Reads an exact integer: an integer, or a real with an integral value that an int64_t can hold.
// Limits are compared in f64, which is exact up to 2^53; no finite limit is above that.
int64_t read_integer(const std::string& path, const Json& given, const Limits& limits) {
  if (given.is_integer()) {
    check_limits(path, static_cast<double>(given.integer()), limits);
    return given.integer();
  }
  if (!given.is_number()) wrong_kind(path, "an integer", given);
  const double x = given.number();
  if (x != std::floor(x) || std::fabs(x) >= 0x1p63) wrong_kind(path, "an integer", given);
  check_limits(path, x, limits);
  return static_cast<int64_t>(x);
}

// Returns the truth value of the words that pydantic accepts.
std::optional<bool> truth_of_word(const std::string& word) {
  for (const char* yes : {"true", "yes", "on", "t", "y", "1"}) {
    if (word == yes) return true;
  }
  for (const char* no : {"false", "no", "off", "f", "n", "0"}) {
    if (word == no) return false;
  }
  return std::nullopt;
}

}  // namespace

std::optional<bool> truth_of(const Json& given) {
  if (given.is_bool()) return given.boolean();
  if (given.is_number() && (given.number() == 0 || given.number() == 1)) return given.number() == 1;
  return std::nullopt;
}

std::optional<bool> truth_at(const std::string& path, const Json& given) {
  // The sections that DeepSpeed reads with pydantic.
  constexpr std::string_view kSections[] = {
      "zero_optimization.", "fp16.",   "bf16.",         "compile.",
      "tensorboard.",       "wandb.",  "comet.",        "csv_monitor.",
      "comms_logger.",      "timers.", "hybrid_engine."};
  const bool words = std::ranges::any_of(
      kSections, [&](std::string_view section) { return path.starts_with(section); });
  return words && given.is_string() ? truth_of_word(ascii_lower(given.string())) : truth_of(given);
}

template <typename T>
T read_value(const std::string& path, const Json& given, const Limits& limits) {
  if constexpr (std::is_same_v<T, bool>) {
    const std::optional<bool> truth = truth_at(path, given);
    if (!truth) wrong_kind(path, "true or false", given);
    return *truth;
  } else if constexpr (std::is_integral_v<T>) {
    const int64_t x = read_integer(path, given, std::is_unsigned_v<T> ? not_negative : limits);
    if (!std::in_range<T>(x)) wrong_kind(path, "a 32-bit integer", given);
    return static_cast<T>(x);
  } else if constexpr (std::is_same_v<T, std::string>) {
    if (!given.is_string()) wrong_kind(path, "a string", given);
    return given.string();
  } else if constexpr (std::is_same_v<T, Tier>) {
    for (Tier tier : {Tier::device, Tier::host, Tier::nvme}) {
      if (given.is_string() && write_value(tier).string() == given.string()) return tier;
    }
    wrong_kind(path, "\"none\", \"cpu\" or \"nvme\"", given);
  } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
    if (given.is_string()) return {given.string()};
    std::vector<std::string> read;
    for (const Json& item : given.is_array() ? given.array() : Json::Array{Json()}) {
      if (!item.is_string()) wrong_kind(path, "an array of strings", given);
      read.push_back(item.string());
    }
    return read;
  } else {
    if (!given.is_number()) wrong_kind(path, "a number", given);
    const double x = given.number();
    if (!std::isfinite(x)) wrong_kind(path, "a finite number", given);
    check_limits(path, x, limits);
    return x;
  }
}

template bool read_value(const std::string&, const Json&, const Limits&);
template int read_value(const std::string&, const Json&, const Limits&);
template int64_t read_value(const std::string&, const Json&, const Limits&);
template uint64_t read_value(const std::string&, const Json&, const Limits&);
template double read_value(const std::string&, const Json&, const Limits&);
template std::optional<double> read_value(const std::string&, const Json&, const Limits&);
template std::string read_value(const std::string&, const Json&, const Limits&);
template Tier read_value(const std::string&, const Json&, const Limits&);
template std::vector<std::string> read_value(const std::string&, const Json&, const Limits&);

std::string read_nonempty(const std::string& path, const Json& given) {
  std::string text = read_value<std::string>(path, given);
  if (text.empty()) refuse(path, "must not be empty, got \"\"");
  return text;
}

int64_t parse_bytes(const std::string& path, const Json& given, const Limits& limits) {
  const char* expected = "bytes as an integer or as text like \"2GiB\"";
  if (!given.is_string()) {
    if (!given.is_number()) wrong_kind(path, expected, given);
    return read_integer(path, given, limits);
  }
  const std::string& text = given.string();
  double amount = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), amount);
  if (error != std::errc{}) wrong_kind(path, expected, given);
  std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
  while (unit.starts_with(' ')) unit.remove_prefix(1);
  // Units with an "i" are powers of 1024, the others powers of 1000.
  constexpr std::pair<std::string_view, double> units[] = {
      {"", 1},      {"B", 1},        {"KB", 1e3},     {"MB", 1e6},     {"GB", 1e9},
      {"TB", 1e12}, {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}};
  for (const auto& [name, factor] : units) {
    const double bytes = amount * factor;
    if (name != unit || bytes < 0 || bytes >= 0x1p63) continue;
    check_limits(path, std::floor(bytes), limits);
    return static_cast<int64_t>(bytes);
  }
  wrong_kind(path, expected, given);
}

}  // namespace ds
