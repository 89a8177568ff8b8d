#pragma once
#include <string>

#include "launch/hostfile.h"

namespace ds {

// Returns the hosts and slots in the form in which DeepSpeed's launcher passes them to a host:
// url-safe base64 of {"host": [slot, ...], ...} with Python's separators and escapes. Names are
// UTF-8; a byte that is not valid UTF-8 becomes U+FFFD.
std::string encode_world_map(const Hosts& hosts);

}  // namespace ds
