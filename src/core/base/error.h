#pragma once
#include <fmt/core.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "ds.h"

namespace ds {

// Parts of a message that a program may want alone: raise() keeps the first of each kind that it
// formats.
struct KeyName {  // of a configuration, dotted: "optimizer.params.lr"
  explicit KeyName(std::string_view name) : text(name) {}
  std::string_view text;
};
struct TensorName {
  explicit TensorName(std::string_view name) : text(name) {}
  std::string_view text;
};
struct RankNumber {
  template <typename Number>
  explicit RankNumber(Number number) : value(static_cast<int64_t>(number)) {}
  int64_t value;
};

}  // namespace ds

// As their parts are formatted: parse() checks a format at compile time, raise() formats the parts.
template <>
struct fmt::formatter<ds::KeyName> : fmt::formatter<std::string_view> {};
template <>
struct fmt::formatter<ds::TensorName> : fmt::formatter<std::string_view> {};
template <>
struct fmt::formatter<ds::RankNumber> : fmt::formatter<int64_t> {};

namespace ds {

// What an error is about, as data; "" and -1: nothing of the kind.
struct ErrorDetails {
  std::string key = {}, tensor = {};
  int64_t rank = -1;

  template <typename Other>
  void take(const Other&) {}
  void take(const KeyName& name) { key = key.empty() ? name.text : key; }
  void take(const TensorName& name) { tensor = tensor.empty() ? name.text : tensor; }
  void take(const RankNumber& number) { rank = rank < 0 ? number.value : rank; }
};

template <typename Other>
const Other& part_of_message(const Other& other) {
  return other;
}
inline std::string_view part_of_message(const KeyName& name) { return name.text; }
inline std::string_view part_of_message(const TensorName& name) { return name.text; }
inline int64_t part_of_message(const RankNumber& number) { return number.value; }

// The one exception type of libds. Thrown when an operation ends without its result; becomes a
// ds_status at the C boundary. The message is one line (a refusal by memory_budget adds a table),
// names the argument and both values, and has no "failed to".
class Error : public std::runtime_error {
 public:
  Error(ds_status status, const std::string& message, ErrorDetails details = {})
      : std::runtime_error(message), status_(status), details_(std::move(details)) {}
  ds_status status() const { return status_; }
  const ErrorDetails& details() const { return details_; }

 private:
  ds_status status_;
  ErrorDetails details_;
};

// Text of any origin as part of an error: what is no UTF-8 and control characters are escaped; of
// more than kMostMessage bytes the middle is left out.
inline constexpr size_t kMostMessage = 500;
std::string one_line(std::string_view text);

template <typename... Args>
[[noreturn]] void raise(ds_status status, fmt::format_string<Args...> format, Args&&... args) {
  ErrorDetails details;
  (details.take(args), ...);
  throw Error(status,
              one_line(fmt::vformat(format, fmt::make_format_args(part_of_message(args)...))),
              std::move(details));
}

// Precondition of a caller's argument.
template <typename... Args>
void require(bool ok, fmt::format_string<Args...> format, Args&&... args) {
  if (!ok) raise(DS_ERROR_INVALID_ARGUMENT, format, std::forward<Args>(args)...);
}

// Internal invariant: its failure is a defect of libds.
template <typename... Args>
void ensure(bool ok, fmt::format_string<Args...> format, Args&&... args) {
  if (!ok) raise(DS_ERROR_INTERNAL, format, std::forward<Args>(args)...);
}

const char* status_name(ds_status status);

}  // namespace ds
