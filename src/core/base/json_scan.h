#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/json.h"

namespace ds {

// Where and why a text is no JSON.
struct JsonFault {
  size_t at = 0;  // offset of the byte
  std::string message;
};

// What a scan makes of a text. The clean text has the length of the given one, without comments and
// with 0 in place of every number.
struct JsonScan {
  std::string clean;
  std::vector<Json> numbers;    // in order of the text
  std::vector<size_t> strings;  // offsets of the opening quotes, in order of the text
  // Strings (by number) that have \u0000, which is a blank in the clean text, and the byte of their
  // value.
  std::vector<std::pair<size_t, size_t>> zeros;
};

// Throws JsonFault, also for \u0000 unless it is allowed.
JsonScan scan_json(std::string_view text, bool zeros = false);

}  // namespace ds
