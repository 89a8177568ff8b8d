#pragma once
#include <fmt/core.h>

#include <stdexcept>
#include <string>
#include <utility>

#include "ds.h"

namespace ds {

// The one exception type of libds. Thrown when an operation ends without its result; becomes a ds_status at
// the C boundary. The message is one line, names the argument and both values, and has no "failed to".
class Error : public std::runtime_error {
 public:
  Error(ds_status status, const std::string& message) : std::runtime_error(message), status_(status) {}
  ds_status status() const { return status_; }

 private:
  ds_status status_;
};

template <typename... Args>
[[noreturn]] void raise(ds_status status, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(status, fmt::format(format, std::forward<Args>(args)...));
}

// Precondition of a caller's argument.
template <typename... Args>
void require(bool ok, fmt::format_string<Args...> format, Args&&... args) {
  if (!ok) throw Error(DS_ERROR_INVALID_ARGUMENT, fmt::format(format, std::forward<Args>(args)...));
}

// Internal invariant: its failure is a defect of libds.
template <typename... Args>
void ensure(bool ok, fmt::format_string<Args...> format, Args&&... args) {
  if (!ok) throw Error(DS_ERROR_INTERNAL, fmt::format(format, std::forward<Args>(args)...));
}

const char* status_name(ds_status status);

}  // namespace ds
