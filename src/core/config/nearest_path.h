#pragma once
#include <string>
#include <vector>

namespace ds {

// Returns the known path nearest to an unknown one, or "". It is either a few typing errors away in
// the same section, or the only path with the same last component in another one.
std::string nearest_path(const std::string& unknown, const std::vector<std::string>& known);

// Returns the known path that a top-level name was meant to be, or "". It is stricter than
// nearest_path, because files have keys of other programs at the top level: the name must have few
// typing errors, be a part of a known name, or be a key that belongs in a section.
std::string resembling_path(const std::string& unknown, const std::vector<std::string>& known);

}  // namespace ds
