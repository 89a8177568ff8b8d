// The part of options.h that does not depend on the type of a request.
#include "core/config/options.h"

#include "core/config/nearest_path.h"
#include "core/config/refuse.h"

namespace ds {

void refuse_option(const std::string& key, const std::vector<std::string>& keys) {
  std::string near = nearest_path(key, keys);
  refuse("options." + key, "unknown key{}", near.empty() ? "" : "; did you mean " + near + "?");
}

}  // namespace ds
