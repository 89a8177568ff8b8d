#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/manifest.h"
#include "checkpoint/pieces.h"
#include "io/direct_blocks.h"
#include "io/file.h"
#include "io/safetensors.h"

namespace ds {

// The files of a committed checkpoint, which are checked against its manifest when they are read.
// Errors about their contents are DS_ERROR_CORRUPT and name the file and, if possible, the tensor.
class StateFiles {
 public:
  // Reads the manifest, but opens no other file.
  explicit StateFiles(const std::string& path);

  const std::string& path() const { return path_; }
  const Manifest& manifest() const { return manifest_; }

  // Opens the files of the first `kinds` kinds of state and checks their sizes and headers.
  void open(size_t kinds);
  size_t opened() const { return files_.size(); }

  using Block = std::function<void(std::span<const float>)>;
  // Calls block() with the elements [begin, begin + count) of a tensor, in order and in blocks of
  // at most kPieceBytes. Does not compare hashes.
  void read(size_t kind, const std::string& tensor, int64_t begin, int64_t count,
            const Block& block);

  // A request to read one piece: all its elements, in the order that its hash covers, or, if
  // `whole` is false, only the elements [begin, begin + count) of its tensor.
  struct Wish {
    // Index of the piece in the manifest.
    size_t piece = 0;
    bool whole = true;
    int64_t begin = 0, count = 0;
  };
  // Stores the next request in `wish`; returns false after the last one.
  using NextWish = std::function<bool(Wish& wish)>;
  // Receives consecutive elements of the piece's tensor, starting at element `begin`.
  using Use = std::function<void(const Piece& piece, int64_t begin, std::span<const float> values)>;
  // Reads the pieces of one kind that next() requests, in that order, and calls use() as the data
  // arrives from the disk (io/direct_reader.h). The hash of a piece that is read whole is compared
  // after its last element, so use() may already have received values of a damaged piece when the
  // error is thrown. If `use` is empty, only the hashes are compared.
  void read_pieces(size_t kind, const NextWish& next, const Use& use);
  // Compares the hashes of all pieces of the open kinds.
  void check_pieces();

 private:
  [[noreturn]] void refuse(const Piece& piece, const std::string& found) const;
  std::string file_path(size_t kind) const;
  std::string path_;
  Manifest manifest_;
  // The headers of the open files, by kind.
  std::vector<SafetensorHeader> headers_;
  // The offset of each tensor of the manifest in its file, in bytes, by kind and tensor.
  std::vector<std::vector<int64_t>> begins_;
  std::vector<File> files_;
  DirectBlocks direct_blocks_;
  std::vector<float> block_ = std::vector<float>(kPieceBytes / sizeof(float));
};

// Throws DS_ERROR_CORRUPT unless the file of one kind exists in the folder `path` in full size.
void check_state_file(const Manifest& manifest, const std::string& path, size_t kind);

}  // namespace ds
