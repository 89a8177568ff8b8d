#pragma once
#include <cstddef>
#include <string>

#include "checkpoint/manifest.h"
#include "checkpoint/state_access.h"

namespace ds {

// Files of per-rank states (StateAccess::own): one safetensors file for each rank, which the
// manifest lists with its size and hash. The tensors are f32 and one-dimensional.

// Writes and syncs this rank's file in the folder `path`. Returns its size and hash.
ManifestRankFile write_own_file(StateAccess& state, const std::string& path);

// Returns whether the file of `rank` has exactly the per-rank states of this engine, by name and
// number of elements.
bool own_file_fits(StateAccess& state, const std::string& path, size_t rank);
// Reads from rank 0's file the states that are equal on all ranks (OwnState::common). States that
// the file lacks, or has in another size, keep their values.
void read_common(StateAccess& state, const std::string& path);
// Reads all per-rank states from the file of `rank`. own_file_fits() must be true for it.
void read_own_file(StateAccess& state, const std::string& path, size_t rank);

}  // namespace ds
