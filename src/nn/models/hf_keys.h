#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/json.h"

namespace ds {

// What a key of config.json means to a family.
enum class KeyUse {
  option,  // read by Transformers and by libds
  noise,   // of training: Transformers has it, libds does not and refuses it in training unless it
           // is 0
  only,    // read by Transformers; libds has one value of it, and refuses others
};

struct HfKey {
  std::string_view name;
  Json otherwise;  // the value of a file without the key; null: none. Of `only`: the one value
  KeyUse use = KeyUse::option;

  bool is_set() const { return otherwise.is_bool() && otherwise.boolean(); }  // a flag that is true
};

// The keys that Transformers 5.23 reads of one family, and so the only ones that libds reads: a key
// that is not here has no effect, whoever asks for it, and is named in a warning.
struct HfKeys {
  std::vector<HfKey> keys;
  // Other names of keys, first the other one: `attribute_map` of the family's class. They count
  // before the key.
  std::vector<std::pair<std::string_view, std::string_view>> aliases;
  std::string_view
      positions;  // the key that says how many rows the table of positions has; "": rope, no table

  const HfKey* find(std::string_view name) const;  // nullptr when the family does not read it
  std::string_view alias_of(
      std::string_view name) const;  // the key that `name` is another name of, or ""
};

// The values of model_type that libds knows, for messages.
std::string hf_families();

// nullptr for a model_type that libds does not know.
const HfKeys* hf_keys(std::string_view family);

// Keys that describe the file, text generation or another head: no family reads them for its
// numbers, and they are so common that no warning names them.
bool is_plain_key(std::string_view name);

}  // namespace ds
