#pragma once
#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>
#include <system_error>

namespace ds {

// Returns N for a device name "cuda:N", otherwise nothing.
inline std::optional<int32_t> cuda_number(std::string_view name) {
  constexpr std::string_view kCuda = "cuda:";
  if (!name.starts_with(kCuda)) return std::nullopt;
  name.remove_prefix(kCuda.size());
  int32_t number = 0;
  auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  bool whole = error == std::errc() && end == name.data() + name.size() && number >= 0;
  return whole ? std::optional(number) : std::nullopt;
}

// The device name without a number, by which each rank chooses its own GPU.
constexpr std::string_view kOwnCuda = "cuda";
inline bool names_cuda(std::string_view name) {
  return name == kOwnCuda || cuda_number(name).has_value();
}

}  // namespace ds
