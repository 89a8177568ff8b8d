#include "core/config/options.h"

#include "core/base/error.h"
#include "core/config/schema.h"

namespace ds {

void unknown_option(const std::string& key, std::span<const std::string> keys) {
  std::string near = nearest_path(key, {keys.begin(), keys.end()});
  raise(DS_ERROR_CONFIG, "options.{}: unknown key{}", key,
        near.empty() ? "" : "; did you mean " + near + "?");
}

}  // namespace ds
