#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/json.h"

namespace ds {

// The purpose for which a family uses a key of config.json.
enum class KeyUse {
  // Transformers and libds read the key.
  option,
  // The key sets noise in training that libds lacks. In training, it must be 0.
  noise,
  // Transformers reads the key; libds supports only one value.
  only,
};

// A key of config.json.
struct HfKey {
  std::string_view name;
  // The default if the file lacks the key; null means no default. For `only` keys, the supported
  // value.
  Json otherwise;
  KeyUse use = KeyUse::option;

  // Returns whether the key is a flag that is true by default.
  bool is_set() const { return otherwise.is_bool() && otherwise.boolean(); }
};

// The keys that Transformers 5.23 reads for one family. libds reads no others: a key that is not
// listed has no effect, whichever code asks for it, and is named in a warning unless is_plain_key()
// is true for it.
struct HfKeys {
  std::vector<HfKey> keys;
  // Aliases, each followed by the key that it stands for: the `attribute_map` of the family's
  // class. If a file has both, the alias takes precedence.
  std::vector<std::pair<std::string_view, std::string_view>> aliases;
  // The key that holds the number of rows of the position table; "" if the family uses rope and has
  // no such table.
  std::string_view positions;

  // Returns the table entry, or null if the family does not read the key.
  const HfKey* find(std::string_view name) const;
  // Returns the key that `name` is an alias for, or "".
  std::string_view alias_of(std::string_view name) const;
};

// Returns the supported values of model_type, for messages.
std::string hf_families();

// Returns the keys of a family, or null if libds does not know the model_type.
const HfKeys* hf_keys(std::string_view family);

// Returns whether a key only describes the file, text generation or another head. A family whose
// table lacks such a key does not use it, and such keys are too common to be named in a warning.
bool is_plain_key(std::string_view name);

}  // namespace ds
