#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/json.h"

namespace ds {

// A fault in a JSON text: its place and a message.
struct JsonFault {
  // Byte offset in the text.
  size_t at = 0;
  std::string message;
};

// The result of a scan. The clean text is as long as the given one; it has blanks instead of
// comments and 0 instead of every number.
struct JsonScan {
  std::string clean;
  // Values of the numbers, in the order of the text.
  std::vector<Json> numbers;
  // Offsets of the opening quotes, in the order of the text.
  std::vector<size_t> strings;
  // One entry for each \u0000: the index of its string, and its byte offset in the value of that
  // string. The clean text has an escaped blank there.
  std::vector<std::pair<size_t, size_t>> zeros;
};

// Scans a text. Throws JsonFault if cJSON might misread it. With `data`, accepts what
// parse_json_data() accepts.
JsonScan scan_json(std::string_view text, bool data = false);

}  // namespace ds
