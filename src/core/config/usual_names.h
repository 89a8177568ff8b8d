#pragma once
#include <string>

namespace ds {

// Returns the key that the unknown key `path` means in other training programs ("learning_rate", or
// "zero" at the top level), or "" if its name is not known. The table has only keys that affect
// training, because ignoring one would change the result. Names that begin with a punctuation mark,
// as comments often do, are never matched.
std::string usual_key(const std::string& path);

}  // namespace ds
