#pragma once

namespace ds {

// What this build is. version.cpp is made from version.cpp.in whenever a source file changes.

const char* library_version();  // "0.1.0"

// "0.1.0 (sources 3f2a91c07d)", with a hash of the library's source files. All ranks of a group
// must have the same one. At most 63 characters.
const char* library_build();

// A hash of the source files of the kernels, a part of the numerics key.
const char* kernels_build();

}  // namespace ds
