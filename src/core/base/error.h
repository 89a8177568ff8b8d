#pragma once
#include <fmt/core.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "ds.h"

namespace ds {

// Typed parts of a message that a host application may want as data. They print like plain text;
// raise() keeps the first of each kind in ErrorDetails.

// The dotted name of a configuration key: "optimizer.params.lr".
struct KeyName {
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

// The configuration key, tensor and rank that an error message names, as data. "" and -1 mean that
// the message names none.
struct ErrorDetails {
  std::string key = {}, tensor = {};
  int64_t rank = -1;

  template <typename Other>
  void take(const Other&) {}
  void take(const KeyName& name) { key = key.empty() ? name.text : key; }
  void take(const TensorName& name) { tensor = tensor.empty() ? name.text : tensor; }
  void take(const RankNumber& number) { rank = rank < 0 ? number.value : rank; }
};

// Returns the value that a format prints for a part: the text or number of a typed part, and any
// other part unchanged.
template <typename Other>
const Other& part_of_message(const Other& other) {
  return other;
}
inline std::string_view part_of_message(const KeyName& name) { return name.text; }
inline std::string_view part_of_message(const TensorName& name) { return name.text; }
inline int64_t part_of_message(const RankNumber& number) { return number.value; }

// The exception type of libds. It is thrown when an operation cannot deliver its result, and
// becomes a ds_status at the C boundary. The message is one line (a refusal by memory_budget adds a
// table), names the argument and both values, and does not say "failed to".
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

// The largest size of an escaped text, in bytes, that one_line() does not shorten.
inline constexpr size_t kMostMessage = 500;
// Makes any text safe as part of an error message: bytes that are not UTF-8 and control characters
// are escaped, and then the middle of a text longer than kMostMessage bytes is left out.
std::string one_line(std::string_view text);

// A format string whose placeholders are checked at compile time against the parts of Args.
template <typename... Args>
using MessageFormat = fmt::format_string<
    std::remove_cvref_t<decltype(part_of_message(std::declval<const Args&>()))>...>;

template <typename... Parts>
std::string message_of(fmt::string_view format, const Parts&... parts) {
  return one_line(fmt::vformat(format, fmt::make_format_args(parts...)));
}

template <typename... Args>
[[noreturn]] void raise(ds_status status, MessageFormat<Args...> format, const Args&... args) {
  ErrorDetails details;
  (details.take(args), ...);
  throw Error(status, message_of(format, part_of_message(args)...), std::move(details));
}

// Throws DS_ERROR_INVALID_ARGUMENT unless a precondition on a caller's argument holds.
template <typename... Args>
void require(bool ok, MessageFormat<Args...> format, const Args&... args) {
  if (!ok) raise(DS_ERROR_INVALID_ARGUMENT, format, args...);
}

// Throws DS_ERROR_INTERNAL unless an invariant holds. If it does not, libds has a defect.
template <typename... Args>
void ensure(bool ok, MessageFormat<Args...> format, const Args&... args) {
  if (!ok) raise(DS_ERROR_INTERNAL, format, args...);
}

const char* status_name(ds_status status);

}  // namespace ds
