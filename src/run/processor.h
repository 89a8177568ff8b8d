#pragma once
#include <string>

namespace ds {

// The model name of this host's processor, as the kernel gives it; where it gives none, the
// architecture.
std::string processor_name();

}  // namespace ds
