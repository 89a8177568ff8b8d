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

// A reader of a config.json for the code that builds a model. Callers ask for keys by name, and the
// family's table (hf_keys.h) says which keys the family has. A key that is not in the table counts
// as absent, whatever the file contains, so families can share the code that asks for it. A key
// that is missing in the file has its default from the table. A value of null, in the file or as
// default, means that the key has no value. All errors name key and value:
// DS_ERROR_INVALID_ARGUMENT for an impossible value, DS_ERROR_UNSUPPORTED for one that libds lacks.
class HfConfig {
 public:
  // `document` is borrowed and must outlive this object.
  explicit HfConfig(const Json& document, bool training = false, HfBatch batch = {});

  // Returns model_type.
  const std::string& family() const { return family_; }
  // Returns the form of the rows that the caller requested.
  HfRows rows() const { return batch_.rows; }
  bool padded() const { return batch_.padded; }
  // Returns the value of a key, or null if it has no value.
  const Json* find(std::string_view key) const;
  // Returns whether the file contains the key, even with the value null.
  bool has(std::string_view key) const;

  // Returns HfKeys::positions.
  std::string_view positions_key() const { return keys_->positions; }

  // The next functions return the value of a key and check its type. If the key has no value, size,
  // count, positive and text throw, the `_or` forms return `otherwise`, flag returns false, and
  // dropout returns 0.

  // An integer from 1 to kMaxSize.
  int64_t size(std::string_view key) const;
  int64_t size_or(std::string_view key, int64_t otherwise) const;
  // An integer >= 0.
  int64_t count(std::string_view key) const;
  // A number > 0.
  double positive(std::string_view key) const;
  double positive_or(std::string_view key, double otherwise) const;
  bool flag(std::string_view key) const;
  std::string text(std::string_view key) const;
  // A probability below 1. Outside training mode the result is 0, but the value is still checked.
  double dropout(std::string_view key) const;

  // Throws for values that libds lacks according to the family's table: for a KeyUse::only key, any
  // value but the supported one; in training, a KeyUse::noise key that is not 0.
  void check_supported() const;
  // Returns the keys of the file that Transformers does not read, except very common ones
  // (is_plain_key()).
  const std::vector<std::string>& unread() const { return unread_; }
  // Adds a key to unread(), such as a member of a nested object.
  void add_unread(std::string key) { unread_.push_back(std::move(key)); }

  // Throws DS_ERROR_UNSUPPORTED for the value of the key. `supported` describes the values that
  // libds supports.
  [[noreturn]] void refuse(std::string_view key, std::string_view supported) const;

 private:
  static constexpr int64_t kMaxSize = 1 << 28;

  // Returns the file's value for this key or for an alias of it, or null.
  const Json* given(std::string_view key) const;
  // Returns the value of the key; throws if it has none.
  const Json& needed(std::string_view key) const;

  const Json& document_;
  bool training_;
  HfBatch batch_;
  std::string family_;
  const HfKeys* keys_;
  std::vector<std::string> unread_;
};

}  // namespace ds
