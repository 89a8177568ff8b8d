#pragma once
#include <exception>
#include <string>
#include <system_error>

namespace ds {

// Returns the text of an error. If the system refused to start a thread or process, the text also
// names the limits that may be the cause; the system's own words, "Resource temporarily
// unavailable", name none.
inline std::string text_with_limits(const std::exception& error) {
  const auto* refused = dynamic_cast<const std::system_error*>(&error);
  if (refused == nullptr || refused->code() != std::errc::resource_unavailable_try_again)
    return error.what();
  return std::string(error.what()) +
         ": no more threads or processes are allowed by `ulimit -u` or by a limit of the control "
         "group (pids)";
}

}  // namespace ds
