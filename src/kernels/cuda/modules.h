#pragma once
#include <span>

namespace ds::cuda {

// Returns the compiled device code of each .cu file: fat binaries inside this plugin. plugin.cmake
// generates the source file that defines this function.
std::span<const void* const> module_images();

}  // namespace ds::cuda
