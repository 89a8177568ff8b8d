#pragma once
#include <fmt/core.h>

#include <string>
#include <string_view>

#include "core/base/error.h"

namespace ds {

// Throws DS_ERROR_CONFIG with the message "KEY: TEXT" and the key as its detail. `text` is a format
// as in raise().
template <typename... Args>
[[noreturn]] void refuse(std::string_view key, MessageFormat<Args...> text, const Args&... args) {
  const fmt::string_view format = text;
  throw Error(
      DS_ERROR_CONFIG,
      message_of("{}: " + std::string(format.data(), format.size()), key, part_of_message(args)...),
      {.key = std::string(key)});
}

}  // namespace ds
