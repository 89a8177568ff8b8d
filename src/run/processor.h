#pragma once
#include <string>

namespace ds {

// Returns the model name of this host's processor as the kernel reports it, or the architecture if
// the kernel reports no model name.
std::string processor_name();

}  // namespace ds
