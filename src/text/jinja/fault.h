#pragma once
#include <fmt/core.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "ds.h"

namespace ds::text::jinja {

// The reason why a template ends without a text. ChatTemplate adds the template's name and the
// line.
struct Fault {
  ds_status status;
  std::string message;
};

// Ends the parsing or rendering of a template with a message.
template <typename... Args>
[[noreturn]] void fault(ds_status status, fmt::format_string<Args...> format, Args&&... args) {
  throw Fault{status, fmt::format(format, std::forward<Args>(args)...)};
}

// The work and memory that one rendering may still use. Every operation pays for its work, and
// every text, list and scope for its bytes, which are not refunded when it is freed. So time and
// memory are bounded whatever the template does.
class Budget {
 public:
  Budget(int64_t steps, int64_t bytes)
      : steps_(steps), bytes_(bytes), all_steps_(steps), all_bytes_(bytes) {}
  // Pays for steps. A step is about the work of visiting a node; long texts pay in proportion to
  // their bytes.
  void work(size_t steps) {
    steps_ -= static_cast<int64_t>(steps);
    if (steps_ < 0)
      fault(DS_ERROR_UNSUPPORTED, "rendering the template needs more than {} steps", all_steps_);
  }
  // Pays for bytes before they are allocated. Compares first, so that a huge number cannot wrap
  // around.
  void memory(size_t bytes) {
    if (bytes > static_cast<size_t>(bytes_)) {
      fault(DS_ERROR_UNSUPPORTED,
            "rendering the template needs more than {} bytes for text and lists", all_bytes_);
    }
    bytes_ -= static_cast<int64_t>(bytes);
  }

 private:
  int64_t steps_, bytes_, all_steps_, all_bytes_;
};

}  // namespace ds::text::jinja
