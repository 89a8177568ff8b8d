#pragma once
#include <cerrno>
#include <string>
#include <system_error>

namespace ds {

// Throws std::system_error with errno, for a call that failed to create a process or thread. If a
// limit may be the reason, the message names it, which the system's message does not.
[[noreturn]] inline void no_process(const char* call) {
  const int code = errno;
  const char* limits = code == EAGAIN ? ": `ulimit -u` or a limit of the control group (pids) "
                                        "allows no further processes or threads"
                                      : "";
  throw std::system_error(code, std::generic_category(), std::string(call) + limits);
}

}  // namespace ds
