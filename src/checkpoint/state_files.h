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

// The files of a committed checkpoint, read as its manifest says. Errors are DS_ERROR_CORRUPT and
// name the file, and the tensor where there is one.
class StateFiles {
 public:
  explicit StateFiles(const std::string& path);  // reads the manifest only

  const std::string& path() const { return path_; }
  const Manifest& manifest() const { return manifest_; }

  // Opens the files of the first `kinds` kinds of state and checks their sizes and headers.
  void open(size_t kinds);
  size_t opened() const { return files_.size(); }

  using Block = std::function<void(std::span<const float>)>;
  // Hands out the elements [begin, begin + count) of a tensor in order, in blocks of at most
  // kPieceBytes.
  void read(size_t kind, const std::string& tensor, int64_t begin, int64_t count,
            const Block& block);

  // Elements of a piece: all of them, in the order of its hash, or, with `whole` false, [begin,
  // begin + count) of its tensor.
  struct Wish {
    size_t piece = 0;  // of the manifest
    bool whole = true;
    int64_t begin = 0, count = 0;
  };
  using NextWish = std::function<bool(Wish& wish)>;  // false: there is no other
  // Elements of the piece's tensor from `begin` on.
  using Use = std::function<void(const Piece& piece, int64_t begin, std::span<const float> values)>;
  // Hands out the elements of the pieces of one kind that next() asks for, one after the other, as
  // they come from the disk (io/direct_reader.h). A whole piece must have its hash, which is known
  // behind its last element.
  void read_pieces(size_t kind, const NextWish& next, const Use& use);
  // Compares the hashes of all pieces of the kinds that are open.
  void check_pieces();

 private:
  [[noreturn]] void refuse(const Piece& piece, const std::string& found) const;
  std::string file_path(size_t kind) const;
  std::string path_;
  Manifest manifest_;
  std::vector<SafetensorHeader> headers_;     // by kind
  std::vector<std::vector<int64_t>> begins_;  // bytes, by kind and tensor of the manifest
  std::vector<File> files_;
  DirectBlocks direct_blocks_;
  std::vector<float> block_ = std::vector<float>(kPieceBytes / sizeof(float));
};

// The file of one kind, below `path`, must be there in full size: DS_ERROR_CORRUPT.
void check_state_file(const Manifest& manifest, const std::string& path, size_t kind);

}  // namespace ds
