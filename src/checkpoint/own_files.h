#pragma once
#include <cstdint>
#include <string>

#include "checkpoint/manifest.h"
#include "checkpoint/state_access.h"

namespace ds {

// Files of per-rank states (StateAccess::own): one safetensors file for each rank, which the
// manifest lists with its size and hash. The tensors are f32 and one-dimensional.

// Returns the name of a rank's file, such as "own-00001.safetensors".
std::string own_file(size_t rank);

// Writes and syncs this rank's file in the folder `path`. Returns its size and hash.
ManifestOwn write_own_file(StateAccess& state, const std::string& path);

// Throws DS_ERROR_CORRUPT unless the file of `rank` has the size that the manifest says. If `whole`
// is set, also reads the file and compares its hash.
void check_own_file(const Manifest& manifest, const std::string& path, size_t rank, bool whole);

// Returns whether the file of `rank` has exactly the per-rank states of this engine, by name and
// number of elements.
bool own_file_fits(StateAccess& state, const std::string& path, size_t rank);
// Reads from rank 0's file the states that are equal on all ranks (OwnState::common). States that
// the file lacks, or has in another size, keep their values.
void read_common(StateAccess& state, const std::string& path);
// Reads all per-rank states from the file of `rank`. own_file_fits() must be true for it.
void read_own_file(StateAccess& state, const std::string& path, size_t rank);

}  // namespace ds
