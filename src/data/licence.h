#pragma once
#include <string>

namespace ds {

// Returns the text without those leading comment blocks (/* */, // lines, # lines) that contain
// "copyright", "license" or "licence" in any case. Other leading comments stay.
std::string strip_licence(const std::string& text);

}  // namespace ds
