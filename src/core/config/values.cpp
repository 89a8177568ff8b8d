#include "core/config/values.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "core/base/ascii.h"
#include "core/base/error.h"

namespace ds {
namespace {

[[noreturn]] void wrong_kind(const std::string& path, const char* expected, const Json& given) {
  const bool is_auto = given.is_string() && given.string() == "auto";
  raise(DS_ERROR_CONFIG, "{}: expected {}, got {}{}", KeyName(path), expected, given.dump(),
        is_auto ? " (a host framework fills \"auto\" in; here a value is needed)" : "");
}

std::string number_text(double x) {
  return std::fabs(x) < 1e15 && x == std::floor(x) ? std::to_string(static_cast<int64_t>(x))
                                                   : fmt::format("{}", x);
}

// Of a range with two ends: " (it must be 0 to 3)". One end is in the message already.
std::string range_text(const Limits& limits) {
  if (std::isinf(limits.low) || (std::isinf(limits.high) && std::isinf(limits.below))) return "";
  const bool open = limits.below <= limits.high;
  return fmt::format(" (it must be {} {} {})", number_text(limits.low),
                     open ? "or more, and below" : "to",
                     number_text(open ? limits.below : limits.high));
}

void check_limits(const std::string& path, double x, const Limits& limits) {
  auto refuse = [&](const char* relation, double limit) {
    raise(DS_ERROR_CONFIG, "{}: {} is {} {}{}", KeyName(path), number_text(x), relation,
          number_text(limit), range_text(limits));
  };
  if (x < limits.low) refuse("below", limits.low);
  if (x > limits.high) refuse("above", limits.high);
  if (x >= limits.below) refuse("not below", limits.below);
}

// An exact integer: an integer, or a real with an integral value that an int64_t can hold.
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

// The words that pydantic takes.
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
  constexpr std::string_view kSections[] = {
      "zero_optimization.", "fp16.",   "bf16.",         "compile.",
      "tensorboard.",       "wandb.",  "comet.",        "csv_monitor.",
      "comms_logger.",      "timers.", "hybrid_engine."};
  const bool words =
      std::any_of(std::begin(kSections), std::end(kSections),
                  [&](std::string_view section) { return path.starts_with(section); });
  return words && given.is_string() ? truth_of_word(ascii_lower(given.string())) : truth_of(given);
}

void read_value(const std::string& path, const Json& given, const Limits&, bool& out) {
  const std::optional<bool> truth = truth_at(path, given);
  if (!truth) wrong_kind(path, "true or false", given);
  out = *truth;
}

void read_value(const std::string& path, const Json& given, const Limits& limits, int& out) {
  const int64_t x = read_integer(path, given, limits);
  if (!std::in_range<int>(x)) wrong_kind(path, "a 32-bit integer", given);
  out = static_cast<int>(x);
}

void read_value(const std::string& path, const Json& given, const Limits& limits, int64_t& out) {
  out = read_integer(path, given, limits);
}

void read_value(const std::string& path, const Json& given, const Limits&, uint64_t& out) {
  out = static_cast<uint64_t>(read_integer(path, given, Limits{.low = 0}));
}

void read_value(const std::string& path, const Json& given, const Limits& limits, double& out) {
  if (!given.is_number()) wrong_kind(path, "a number", given);
  const double x = given.number();
  if (!std::isfinite(x)) wrong_kind(path, "a finite number", given);
  check_limits(path, x, limits);
  out = x;
}

void read_value(const std::string& path, const Json& given, const Limits&, std::string& out) {
  if (!given.is_string()) wrong_kind(path, "a string", given);
  out = given.string();
}

void read_value(const std::string& path, const Json& given, const Limits&, Tier& out) {
  if (!given.is_string()) wrong_kind(path, "\"none\", \"cpu\" or \"nvme\"", given);
  for (Tier tier : {Tier::device, Tier::host, Tier::nvme}) {
    if (write_value(tier).string() == given.string()) {
      out = tier;
      return;
    }
  }
  wrong_kind(path, "\"none\", \"cpu\" or \"nvme\"", given);
}

void read_value(const std::string& path, const Json& given, const Limits&,
                std::vector<std::string>& out) {
  if (given.is_string()) {
    out = {given.string()};
    return;
  }
  if (!given.is_array()) wrong_kind(path, "an array of strings", given);
  std::vector<std::string> read;
  for (const Json& item : given.array()) {
    if (!item.is_string()) wrong_kind(path, "an array of strings", given);
    read.push_back(item.string());
  }
  out = std::move(read);
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
  constexpr std::array<std::pair<std::string_view, double>, 10> units = {{
      {"", 1},
      {"B", 1},
      {"KB", 1e3},
      {"MB", 1e6},
      {"GB", 1e9},
      {"TB", 1e12},
      {"KiB", 0x1p10},
      {"MiB", 0x1p20},
      {"GiB", 0x1p30},
      {"TiB", 0x1p40},
  }};
  for (const auto& [name, factor] : units) {
    const double bytes = amount * factor;
    if (name != unit || bytes < 0 || bytes >= 0x1p63) continue;
    check_limits(path, std::floor(bytes), limits);
    return static_cast<int64_t>(bytes);
  }
  wrong_kind(path, expected, given);
}

Json write_value(bool value) { return value; }
Json write_value(int value) { return value; }
Json write_value(int64_t value) { return value; }
Json write_value(uint64_t value) { return static_cast<int64_t>(value); }
Json write_value(double value) { return value; }
Json write_value(const std::string& value) { return value; }
Json write_value(Tier value) {
  return value == Tier::device ? "none" : value == Tier::host ? "cpu" : "nvme";
}
Json write_value(const std::vector<std::string>& value) {
  return Json::Array(value.begin(), value.end());
}

}  // namespace ds
