#pragma once
#include <string>

#include "launch/hostfile.h"

namespace ds {

// The world map as DeepSpeed hands it to a host: url-safe base64 of {"host": [slot, ...], ...} with
// Python's separators and escapes. Names are UTF-8; a byte that is not becomes U+FFFD.
std::string encode_world_map(const Hosts& hosts);

}  // namespace ds
