#pragma once
#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include "core/base/json.h"

namespace ds {

// A config.json while a model is built from it. Keys are asked for by name; null counts as absent. At the end
// check_all_read() refuses every key that nobody asked for, unless it is known to have no effect on the
// numbers (see no_effect in the .cpp; in evaluation mode also training_noise), so that no option is passed
// over in silence. All errors name key and value: DS_ERROR_INVALID_ARGUMENT for a value that cannot be,
// DS_ERROR_UNSUPPORTED for one that libds lacks.
class HfConfig {
 public:
  explicit HfConfig(const Json& document, bool training = false);  // borrowed

  const std::string& family() const { return family_; }  // model_type
  const Json* find(std::string_view key);                // nullptr when absent or null
  bool has(std::string_view key) const { return document_.find(key) != nullptr; }  // null counts

  int64_t size(std::string_view key);  // needed; from 1 to kMaxSize
  int64_t size_or(std::string_view key, int64_t otherwise);
  // 0 when null, `otherwise` only when absent: for options that null switches off.
  int64_t size_or_none(std::string_view key, int64_t otherwise);
  double positive_or_none(std::string_view key, double otherwise);
  int64_t count_or(std::string_view key, int64_t otherwise);   // >= 0
  double positive_or(std::string_view key, double otherwise);  // > 0
  bool flag_or(std::string_view key, bool otherwise);
  std::string text_or(std::string_view key, const std::string& otherwise);
  double dropout(std::string_view key);  // a probability; 0 when absent, or not training
  // The one value that libds supports, or absence.
  void only(std::string_view key, const Json& value);
  // Read, but of no effect in this family.
  void pass_over(std::string_view key) { read_.emplace(key); }
  void check_all_read() const;

  [[noreturn]] void refuse(std::string_view key, std::string_view supported);  // an unsupported value

 private:
  static constexpr int64_t kMaxSize = 1 << 28;

  const Json& document_;
  bool training_;
  std::string family_;
  std::set<std::string, std::less<>> read_;
};

}  // namespace ds
