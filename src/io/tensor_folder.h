#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/safetensors.h"

namespace ds {

// A file of tensors in a model folder. As on the Hugging Face hub, a folder has model.safetensors,
// or several files with model.safetensors.index.json, or files that torch.save wrote:
// pytorch_model.bin, or several files with pytorch_model.bin.index.json. If a folder has several of
// these four, the first one is read.
struct TensorFile {
  // The name of the file inside the folder.
  std::string name;
  SafetensorHeader header;
};

// The files of a model folder with their headers.
struct TensorFolder {
  std::string path;
  // The files, in the order of their names.
  std::vector<TensorFile> files;
  // Whether an index lists the files.
  bool sharded = false;
  // Whether torch.save wrote the files.
  bool torch = false;

  std::string file_path(size_t file) const { return path + "/" + files[file].name; }
};

inline constexpr std::string_view kTensorFile = "model.safetensors";
inline constexpr std::string_view kTensorIndex = "model.safetensors.index.json";
inline constexpr std::string_view kTorchFile = "pytorch_model.bin";
inline constexpr std::string_view kTorchIndex = "pytorch_model.bin.index.json";

// Returns whether the folder has one of these four files.
bool has_tensors(const std::string& path);

// Reads and checks all headers. Throws DS_ERROR_NOT_FOUND if the folder has none of the files or
// the index names a shard that does not exist. Throws DS_ERROR_CORRUPT, naming file and tensor, if
// the index is damaged, names a file outside the folder, or disagrees with the shards: each tensor
// must be in the shard that the index names, and in no other (torch files may contain tensors that
// the index lacks). Follows symbolic links, as the Hugging Face cache needs; only regular files are
// read.
TensorFolder read_tensor_folder(const std::string& path);

}  // namespace ds
