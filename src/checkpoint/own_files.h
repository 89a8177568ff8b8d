#pragma once
#include <cstdint>
#include <string>

#include "checkpoint/manifest.h"
#include "checkpoint/state_access.h"

namespace ds {

// Files of what each rank has for itself (StateAccess::own_states), one a rank: plain safetensors,
// listed by the manifest with size and hash. Their tensors are f32 and flat.
std::string own_file(size_t rank);  // "own-00001.safetensors"

// Writes and syncs the file of this rank, below the folder `path`.
ManifestOwn write_own_file(StateAccess& state, const std::string& path);

// That the file of a rank is as the manifest says: DS_ERROR_CORRUPT. whole: reads it and compares
// its hash, too.
void check_own_file(const Manifest& manifest, const std::string& path, size_t rank, bool whole);

// Whether the file has what the engine's rank of that number has, by name and number of elements.
bool own_file_fits(StateAccess& state, const std::string& path, size_t rank);
// Takes over what the file of rank 0 has of common states.
void read_common(StateAccess& state, const std::string& path);
// Takes over what it has; it fits.
void read_own_file(StateAccess& state, const std::string& path, size_t rank);

}  // namespace ds
