#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/manifest.h"
#include "checkpoint/pieces.h"
#include "io/file.h"
#include "io/safetensors.h"

namespace ds {

// The files of a committed checkpoint, read as its manifest says. Errors are DS_ERROR_CORRUPT and name the
// file, and the tensor where there is one.
class StateFiles {
 public:
  explicit StateFiles(const std::string& path);  // reads the manifest only

  const std::string& path() const { return path_; }
  const Manifest& manifest() const { return manifest_; }

  // Opens the files of the first `kinds` kinds of state and checks their sizes and headers.
  void open(size_t kinds);
  size_t opened() const { return files_.size(); }

  using Block = std::function<void(std::span<const float>)>;
  // Hands out the elements [begin, begin + count) of a tensor in order, in blocks of at most kPieceBytes.
  void read(size_t kind, const std::string& tensor, int64_t begin, int64_t count, const Block& block);
  // The same of a piece, which must have its hash; that is known behind the last block.
  void read_piece(const Piece& piece, const Block& block);

 private:
  std::string file_path(size_t kind) const;
  std::string path_;
  Manifest manifest_;
  std::vector<SafetensorHeader> headers_;  // by kind
  std::vector<File> files_;
  std::vector<float> block_ = std::vector<float>(kPieceBytes / sizeof(float));
};

// The file of one kind, below `path`, must be there in full size: DS_ERROR_CORRUPT.
void check_state_file(const Manifest& manifest, const std::string& path, size_t kind);

}  // namespace ds
