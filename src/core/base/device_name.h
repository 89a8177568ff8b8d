#pragma once
#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>
#include <system_error>

namespace ds {

// N of a device named "cuda:N".
inline std::optional<int32_t> cuda_number(std::string_view name) {
  constexpr std::string_view kCuda = "cuda:";
  if (!name.starts_with(kCuda)) return std::nullopt;
  name.remove_prefix(kCuda.size());
  int32_t number = 0;
  auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  bool whole = error == std::errc() && end == name.data() + name.size() && number >= 0;
  return whole ? std::optional(number) : std::nullopt;
}

}  // namespace ds
