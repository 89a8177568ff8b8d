#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "ds_plugin.h"

namespace ds {

// Returns the table of libds_text.so, which the first call loads. Throws DS_ERROR_UNSUPPORTED,
// naming the file, if it is missing.
const ds_plugin_text_table& text_plugin();

// Returns "here", "no plugin", or the reason why the plugin cannot be loaded.
std::string text_plugin_state();

// Throws the error of a call of the plugin, with its status, message and key, unless `status` is
// DS_OK.
void check_text(int32_t status);

inline ds_plugin_chars plugin_chars(std::string_view text) { return {text.data(), text.size()}; }

// The result of a call of the plugin. The views are valid as long as this object lives.
class TextResult {
 public:
  TextResult() = default;
  ~TextResult() {
    if (result_.owner) text_plugin().release(&result_);
  }
  TextResult(const TextResult&) = delete;
  TextResult& operator=(const TextResult&) = delete;

  ds_plugin_result* out() { return &result_; }
  std::string_view text() const { return {result_.text.data, result_.text.size}; }
  std::span<const int32_t> tokens() const { return {result_.tokens, result_.count}; }
  std::span<const uint8_t> targets() const { return {result_.targets, result_.count}; }

 private:
  ds_plugin_result result_{};
};

}  // namespace ds
