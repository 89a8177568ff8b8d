#pragma once

namespace ds {

// The identity of this build. The build generates version.cpp from version.cpp.in whenever a source
// file changes.

// Returns the version, such as "0.1.0".
const char* library_version();

// Returns the version with a hash of the library's source files, such as "0.1.0 (sources
// 3f2a91c07d)". It must be equal on all ranks of a group. At most 63 characters.
const char* library_build();

// Returns a hash of the source files of the kernels, a part of the numerics key.
const char* kernels_build();

}  // namespace ds
