#pragma once
#include <fmt/core.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "ds.h"

namespace ds::jinja {

// Why a template ends without a text. The interpreter adds the template's name and the line.
struct Fault {
  ds_status status;
  std::string message;
};

template <typename... Args>
[[noreturn]] void fault(ds_status status, fmt::format_string<Args...> format, Args&&... args) {
  throw Fault{status, fmt::format(format, std::forward<Args>(args)...)};
}

// What one rendering may still use. Every operation pays for its work, and every text, list and
// scope for its bytes, which are never given back; so time and memory are bounded whatever the
// template says.
class Budget {
 public:
  Budget(int64_t steps, int64_t bytes)
      : steps_(steps), bytes_(bytes), all_steps_(steps), all_bytes_(bytes) {}
  void work(size_t steps) {
    steps_ -= static_cast<int64_t>(steps);
    if (steps_ < 0)
      fault(DS_ERROR_UNSUPPORTED, "the template takes more than {} steps", all_steps_);
  }
  void memory(size_t bytes) {
    if (bytes > static_cast<size_t>(bytes_)) {
      fault(DS_ERROR_UNSUPPORTED, "the template makes more than {} bytes of text and lists",
            all_bytes_);
    }
    bytes_ -= static_cast<int64_t>(bytes);
  }

 private:
  int64_t steps_, bytes_, all_steps_, all_bytes_;
};

}  // namespace ds::jinja
