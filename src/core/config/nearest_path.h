#pragma once
#include <string>
#include <vector>

namespace ds {

// The known path nearest to an unknown one, or "": the same last component elsewhere, or a few typing errors
// away in the same section.
std::string nearest_path(const std::string& unknown, const std::vector<std::string>& known);

}  // namespace ds
