#pragma once
#include <string>
#include <vector>

namespace ds {

// Returns the known path nearest to an unknown one, or "". The result is a path of the same section
// that is a few typing errors away or, if there is none, the only known path with the same last
// component.
std::string nearest_path(const std::string& unknown, const std::vector<std::string>& known);

// Returns the known path that a top-level name was meant to be, or "". The match is stricter than
// in nearest_path, because files have keys of other programs at the top level: the name must have
// few typing errors, be a long part of a known top-level name, or be the name of a key in a
// section.
std::string resembling_path(const std::string& unknown, const std::vector<std::string>& known);

}  // namespace ds
