#pragma once
#include <fmt/core.h>

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "ds.h"

namespace ds {

// The one exception type of libds. Thrown when an operation ends without its result; becomes a ds_status at
// the C boundary. The message is one line (a refusal by memory_budget adds a table), names the argument and
// both values, and has no "failed to".
class Error : public std::runtime_error {
 public:
  Error(ds_status status, const std::string& message) : std::runtime_error(message), status_(status) {}
  ds_status status() const { return status_; }

 private:
  ds_status status_;
};

// Text of any origin as part of an error: what is no UTF-8 and control characters are escaped; of more than
// kMostMessage bytes the middle is left out.
inline constexpr size_t kMostMessage = 500;
std::string one_line(std::string_view text);

template <typename... Args>
[[noreturn]] void raise(ds_status status, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(status, one_line(fmt::format(format, std::forward<Args>(args)...)));
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
