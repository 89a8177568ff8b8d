#pragma once
#include <span>

namespace ds::cuda {

// The compiled device code of each .cu file: fat binaries inside this plugin (modules.cmake writes
// them).
std::span<const void* const> module_images();

}  // namespace ds::cuda
