#pragma once
#include <string>
#include <vector>

namespace ds {

// The known path nearest to an unknown one, or "": the same last component elsewhere, or a few
// typing errors away in the same section.
std::string nearest_path(const std::string& unknown, const std::vector<std::string>& known);

// The known top-level path that a top-level name was meant to be, or "". Stricter than
// nearest_path, because files have keys of other programs there: a typing error, a part of the
// name, or a key that belongs into a section.
std::string resembling_path(const std::string& unknown, const std::vector<std::string>& known);

}  // namespace ds
