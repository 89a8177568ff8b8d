#include "core/config/schema.h"

#include "core/config/key.h"
#include "core/config/sections.h"

namespace ds {

// The list is built at the first call from the sections that are registered by then and is never
// destroyed, so that threads may use it while the process exits.
const KeyList& config_keys() {
  static const auto& keys = *new auto([] {
    KeyList all;
    for (const ConfigSection& section : config_sections()) {
      if (section.keys) section.keys(all);
    }
    return all;
  }());
  return keys;
}

}  // namespace ds
