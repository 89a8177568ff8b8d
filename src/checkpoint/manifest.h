#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/pieces.h"
#include "io/safetensors.h"

namespace ds {

inline constexpr int kManifestSchema = 2;
inline constexpr std::string_view kManifestName = "manifest.json";
inline constexpr int64_t kMostManifest = int64_t{256} << 20;
inline constexpr size_t kPieceBytes = size_t{4}
                                      << 20;  // memory of one transfer between file and state

struct ManifestTensor {
  std::string name;
  std::vector<int64_t> shape;
  int64_t numel() const;
};

struct ManifestFile {
  int64_t bytes = 0;
  std::string header;  // hash of the bytes before the first tensor
};

// The file of what one rank has for itself (checkpoint/own_files.h).
struct ManifestOwn {
  int64_t bytes = 0;
  std::string hash;  // of the whole file
};

// The commit record of a checkpoint: what it must contain to be whole.
struct Manifest {
  CheckpointInfo info;
  int64_t world = 1;                    // ranks that wrote it
  std::vector<std::string> kinds;       // of state, master first; each has one file
  std::vector<ManifestFile> files;      // by kind
  std::vector<ManifestTensor> tensors;  // in the order of parameters
  std::vector<Piece> pieces;     // sorted by (kind, tensor, begin); together every element once
  std::vector<ManifestOwn> own;  // by rank; empty where no rank had anything of its own
  std::string hash;              // as read: of the document

  std::string print() const;  // JSON; its last member is the hash of all before it
};

std::string state_file(const std::string& kind);  // "exp_avg.safetensors"

// Reads and checks path/manifest.json. DS_ERROR_NOT_FOUND without one; DS_ERROR_CORRUPT when it is
// cut off, changed, or its pieces do not tile the tensors; DS_ERROR_UNSUPPORTED for another schema.
Manifest read_manifest(const std::string& path);
Manifest parse_manifest(std::string_view text, const std::string& source);
void sort_and_check_pieces(Manifest& manifest, const std::string& source);

}  // namespace ds
