#pragma once
#include <cerrno>
#include <string>
#include <system_error>

namespace ds {

// Throws std::system_error for a call that has made no process or thread, by errno; where a limit
// may be the reason, it says which, as the system's own words do not.
[[noreturn]] inline void no_process(const char* call) {
  const int code = errno;
  const char* limits = code == EAGAIN ? ": no more processes or threads are allowed by `ulimit -u` "
                                        "or by a limit of the control "
                                        "group (pids)"
                                      : "";
  throw std::system_error(code, std::generic_category(), std::string(call) + limits);
}

}  // namespace ds
