#pragma once
#include <string>

namespace ds {

// xxh3-128 over (name, dtype, shape, bytes) of every tensor of every state kind in the order of
// names: equal for equal training state whatever the layout that saved it. Checks all of the
// manifest's hashes on the way: DS_ERROR_CORRUPT naming tensor and file.
std::string payload_hash(const std::string& path);

}  // namespace ds
