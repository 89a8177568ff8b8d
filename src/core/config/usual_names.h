#pragma once
#include <string>

namespace ds {

// The key that a name means which other programs of this kind use for it, such as "learning_rate"
// or, at the top level, "zero"; "": none. `path` is that of an unknown key. What training depends
// on is here, because it must not be lost where such a name stands for it; names for folders and
// reports are not. Names that begin with a mark, as those of comments do, mean nothing.
std::string usual_key(const std::string& path);

}  // namespace ds
