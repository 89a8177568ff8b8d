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

// The version of the schema that this build writes, and the only one that it reads.
inline constexpr int kManifestSchema = 2;
inline constexpr std::string_view kManifestName = "manifest.json";
// Size of the largest manifest that is read or written, in bytes.
inline constexpr int64_t kMostManifest = int64_t{256} << 20;
// Size of the buffer for one transfer between file and state, in bytes.
inline constexpr size_t kPieceBytes = size_t{4} << 20;

// Name and shape of an unpartitioned tensor of the model. numel() throws if an extent is negative
// or the product overflows.
struct ManifestTensor {
  std::string name;
  std::vector<int64_t> shape;
  int64_t numel() const;
};

// The file that stores one kind of state.
struct ManifestFile {
  int64_t bytes = 0;
  // Hash of the bytes before the first tensor (the safetensors header).
  std::string header;
};

// A file that one rank writes for itself (checkpoint/rank_files.h).
struct ManifestRankFile {
  int64_t bytes = 0;
  // Hash of all bytes of the file.
  std::string hash;
};

// The commit record of a checkpoint. It lists everything that the checkpoint must contain.
struct Manifest {
  CheckpointInfo info;
  // Number of ranks that wrote the checkpoint.
  int64_t world = 1;
  // The kinds of state, each stored in one file. The master comes first.
  std::vector<std::string> kinds;
  // The files, by kind.
  std::vector<ManifestFile> files;
  // The tensors, in the order of the parameters of the run that saved them.
  std::vector<ManifestTensor> tensors;
  // The pieces, sorted by (kind, tensor, begin). Together they cover every element exactly once.
  std::vector<Piece> pieces;
  // The files of per-rank states, by rank. Empty if no rank had per-rank states.
  std::vector<ManifestRankFile> own;
  // The files of attachments, by rank. Empty if no rank had attached anything.
  std::vector<ManifestRankFile> attached;
  // The hash member of the manifest that was read.
  std::string hash;

  // Returns the JSON text. Its last member is the hash of all members before it.
  std::string print() const;
};

// Returns the file name of a kind of state, such as "exp_avg.safetensors".
std::string state_file(const std::string& kind);

// Reads and checks path/manifest.json. Throws DS_ERROR_NOT_FOUND if it does not exist,
// DS_ERROR_CORRUPT if it is truncated or modified or its pieces do not tile the tensors, and
// DS_ERROR_UNSUPPORTED if its schema is not kManifestSchema.
Manifest read_manifest(const std::string& path);
// Parses and checks the text of a manifest. `source` names the file in errors, which are those of
// read_manifest().
Manifest parse_manifest(std::string_view text, const std::string& source);
// Sorts the pieces and throws DS_ERROR_CORRUPT unless they tile every tensor of every kind.
void sort_and_check_pieces(Manifest& manifest, const std::string& source);

}  // namespace ds
