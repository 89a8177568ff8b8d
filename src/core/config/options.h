#pragma once
#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "core/base/json_read.h"

namespace ds {

// A member of the JSON `options` of a call. `put` stores its value in a request.
template <typename Request>
struct Option {
  const char* key;
  void (*put)(Request& request, const JsonReader& value);
};

// Throws DS_ERROR_CONFIG, which names the unknown option `key` and, if one resembles it, an option
// of `keys`.
[[noreturn]] void refuse_option(const std::string& key, const std::vector<std::string>& keys);

// Returns the request that the members of `document` describe. Members that are not in the table of
// options are refused by name.
template <typename Request, size_t count>
Request request_of(const Json& document, const Option<Request> (&options)[count]) {
  Request request;
  for (const auto& [key, value] : JsonReader("options", document).members()) {
    auto row = std::find_if(options, options + count, [&](const auto& o) { return o.key == key; });
    if (row == options + count) {
      std::vector<std::string> keys;
      for (const auto& option : options) keys.emplace_back(option.key);
      refuse_option(key, keys);
    }
    row->put(request, value);
  }
  return request;
}

}  // namespace ds
