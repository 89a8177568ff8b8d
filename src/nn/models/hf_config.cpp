// Reads a config.json according to the table of its family.
//
// Three cases must be distinguished: the key is missing, so the table's default applies; its value
// is null, so it has no value, whatever the default; or it has a value. find() treats the first and
// third case alike, and has() distinguishes the first one from the others. The constructor collects
// keys that the table lacks for a warning instead of an error, because files contain settings of
// other programs.
#include "nn/models/hf_config.h"

#include <fmt/core.h>

#include <algorithm>

#include "core/base/error.h"

namespace ds {
namespace {

// Returns a value as text for a message, truncated to 80 bytes.
std::string shown(const Json& value) {
  std::string text = value.dump();
  return text.size() <= 80 ? text : text.substr(0, 77) + "...";
}

[[noreturn]] void refuse_value(std::string_view key, std::string_view wanted, const Json& value) {
  raise(DS_ERROR_INVALID_ARGUMENT, "key '{}' must be {}, got {}", key, wanted, shown(value));
}

std::string family_of(const Json& document) {
  if (!document.is_object()) {
    raise(DS_ERROR_INVALID_ARGUMENT, "a model's configuration must be an object, got {}",
          document.kind());
  }
  const Json* type = document.find("model_type");
  if (type == nullptr || type->is_null()) return {};
  if (!type->is_string()) refuse_value("model_type", "a string", *type);
  return type->string();
}

}  // namespace

HfConfig::HfConfig(const Json& document, bool training, HfBatch batch)
    : document_(document),
      training_(training),
      batch_(batch),
      family_(family_of(document)),
      keys_(hf_keys(family_)) {
  if (keys_ == nullptr && family_.empty()) {
    raise(DS_ERROR_UNSUPPORTED, "key 'model_type' is missing: it must be one of {}", hf_families());
  }
  if (keys_ == nullptr) {
    raise(DS_ERROR_UNSUPPORTED, "key 'model_type' must be one of {}, got '{}'", hf_families(),
          family_);
  }
  for (const auto& [key, value] : document.object()) {
    bool known = keys_->find(key) != nullptr || !keys_->alias_of(key).empty() || is_plain_key(key);
    if (!known && !value.is_null()) unread_.push_back(key);
  }
}

// An alias takes precedence over the key itself, as in Transformers' attribute_map.
const Json* HfConfig::given(std::string_view key) const {
  for (const auto& [other, name] : keys_->aliases) {
    const Json* value = name == key ? document_.find(other) : nullptr;
    if (value != nullptr) return value;
  }
  return document_.find(key);
}

bool HfConfig::has(std::string_view key) const {
  return keys_->find(key) != nullptr && given(key) != nullptr;
}

const Json* HfConfig::find(std::string_view key) const {
  const HfKey* row = keys_->find(key);
  if (row == nullptr) return nullptr;
  const Json* value = given(key);
  if (value == nullptr) value = &row->otherwise;
  return value->is_null() ? nullptr : value;
}

const Json& HfConfig::needed(std::string_view key) const {
  const Json* value = find(key);
  if (value == nullptr) raise(DS_ERROR_INVALID_ARGUMENT, "key '{}' must be given, got none", key);
  return *value;
}

int64_t HfConfig::size(std::string_view key) const {
  const Json& value = needed(key);
  bool good = value.is_integer() && value.integer() >= 1 && value.integer() <= kMaxSize;
  if (!good) refuse_value(key, fmt::format("an integer from 1 to {}", kMaxSize), value);
  return value.integer();
}

int64_t HfConfig::size_or(std::string_view key, int64_t otherwise) const {
  return find(key) == nullptr ? otherwise : size(key);
}

int64_t HfConfig::count(std::string_view key) const {
  const Json& value = needed(key);
  if (!value.is_integer() || value.integer() < 0) refuse_value(key, "an integer >= 0", value);
  return value.integer();
}

double HfConfig::positive(std::string_view key) const {
  const Json& value = needed(key);
  if (!value.is_number() || !(value.number() > 0)) refuse_value(key, "a number > 0", value);
  return value.number();
}

double HfConfig::positive_or(std::string_view key, double otherwise) const {
  return find(key) == nullptr ? otherwise : positive(key);
}

bool HfConfig::flag(std::string_view key) const {
  const Json* value = find(key);
  if (value == nullptr) return false;
  if (!value->is_bool()) refuse_value(key, "true or false", *value);
  return value->boolean();
}

double HfConfig::dropout(std::string_view key) const {
  const Json* value = find(key);
  if (value == nullptr) return 0;
  bool good = value->is_number() && value->number() >= 0 && value->number() < 1;
  if (!good) refuse_value(key, "a number in [0, 1)", *value);
  return training_ ? value->number() : 0;
}

std::string HfConfig::text(std::string_view key) const {
  const Json& value = needed(key);
  if (!value.is_string()) refuse_value(key, "a string", value);
  return value.string();
}

void HfConfig::refuse(std::string_view key, std::string_view supported) const {
  const Json* value = find(key);
  raise(DS_ERROR_UNSUPPORTED, "key '{}' of a {} model must be {}, got {}", key, family_, supported,
        value != nullptr ? shown(*value)
        : has(key)       ? "null"
                         : "none");
}

void HfConfig::check_supported() const {
  for (const HfKey& key : keys_->keys) {
    const Json* value = find(key.name);
    if (key.use == KeyUse::only) {
      // A null in the file is equivalent to the value false.
      bool same = value == nullptr ? !has(key.name) || !key.is_set()
                                   : value->dump() == key.otherwise.dump();
      if (!same) refuse(key.name, key.otherwise.is_null() ? "absent" : key.otherwise.dump());
    } else if (key.use == KeyUse::noise && training_ && value != nullptr) {
      if (value->is_number() && value->number() == 0) continue;
      raise(DS_ERROR_UNSUPPORTED,
            "key '{}' of a {} model must be 0 in training, got {}{} (model.dropout 0 turns all "
            "noise of the model off)",
            key.name, family_, has(key.name) ? "" : "none, which means ", shown(*value));
    }
  }
}

}  // namespace ds
