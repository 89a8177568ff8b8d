#pragma once
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/json.h"
#include "nn/models/hf_keys.h"
#include "nn/models/hf_rows.h"

namespace ds {

// A config.json while a model is built from it. Keys are asked for by name, and answered for from
// the family's table (hf_keys.h): a key that is not in it is absent here whatever the file says, so
// families can share the code that asks. A key that the file lacks has the value that the table
// gives it; null is none. All errors name key and value: DS_ERROR_INVALID_ARGUMENT for a value that
// cannot be, DS_ERROR_UNSUPPORTED for one that libds lacks.
class HfConfig {
 public:
  explicit HfConfig(const Json& document, bool training = false, HfBatch batch = {});  // borrowed

  const std::string& family() const { return family_; }  // model_type
  HfRows rows() const { return batch_.rows; }            // what the caller wants
  bool padded() const { return batch_.padded; }
  const Json* find(std::string_view key) const;  // nullptr: none
  bool has(std::string_view key) const;          // the file has it, null counts

  std::string_view positions_key() const { return keys_->positions; }  // HfKeys::positions
  int64_t size(std::string_view key) const;                            // needed; from 1 to kMaxSize
  int64_t size_or(std::string_view key, int64_t otherwise) const;      // `otherwise`: when none
  int64_t count(std::string_view key) const;                           // needed; >= 0
  double positive(std::string_view key) const;                         // needed; > 0
  double positive_or(std::string_view key, double otherwise) const;    // `otherwise`: when none
  bool flag(std::string_view key) const;                               // none: false
  std::string text(std::string_view key) const;                        // needed
  double dropout(std::string_view key) const;  // a probability; 0 when not training

  // Refuses what the family's table says libds has not: another value of an `only`, and in training
  // noise.
  void check_supported() const;
  // The keys of the file that Transformers does not read, but for the most common ones.
  const std::vector<std::string>& unread() const { return unread_; }
  // One more, a member of an object.
  void add_unread(std::string key) { unread_.push_back(std::move(key)); }

  [[noreturn]] void refuse(std::string_view key,
                           std::string_view supported) const;  // an unsupported value

 private:
  static constexpr int64_t kMaxSize = 1 << 28;

  const Json* given(std::string_view key) const;  // in the file, by this or its other name
  const Json& needed(std::string_view key) const;

  const Json& document_;
  bool training_;
  HfBatch batch_;
  std::string family_;
  const HfKeys* keys_;
  std::vector<std::string> unread_;
};

}  // namespace ds
