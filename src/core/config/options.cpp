#include "core/config/options.h"

#include "core/base/error.h"
#include "core/config/nearest_path.h"

namespace ds {

void refuse_option(const std::string& key, const std::vector<std::string>& keys) {
  std::string near = nearest_path(key, keys);
  raise(DS_ERROR_CONFIG, "{}: unknown key{}", KeyName("options." + key),
        near.empty() ? "" : "; did you mean " + near + "?");
}

}  // namespace ds
