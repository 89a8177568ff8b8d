#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/safetensors.h"

namespace ds {

// A folder of tensors as the Hugging Face hub has them: model.safetensors, or several files with
// model.safetensors.index.json; where neither is, what torch.save wrote: pytorch_model.bin, or
// several with pytorch_model.bin.index.json. The first of these four is read.
struct TensorFile {
  std::string name;  // inside the folder
  SafetensorHeader header;
};

struct TensorFolder {
  std::string path;
  std::vector<TensorFile> files;  // in the order of names
  bool sharded = false;           // there is an index
  bool torch = false;             // the files are torch's

  std::string file_path(size_t file) const { return path + "/" + files[file].name; }
};

inline constexpr std::string_view kTensorFile = "model.safetensors";
inline constexpr std::string_view kTensorIndex = "model.safetensors.index.json";
inline constexpr std::string_view kTorchFile = "pytorch_model.bin";
inline constexpr std::string_view kTorchIndex = "pytorch_model.bin.index.json";

// Whether the folder has one of these files.
bool has_tensors(const std::string& path);

// Reads and checks all headers. DS_ERROR_NOT_FOUND when the folder has none of the files or the
// index names a shard that does not exist; DS_ERROR_CORRUPT, naming file and tensor, when the index
// is damaged, names a file outside the folder, or disagrees with the shards: each tensor is in the
// shard that the index says, and in no other (torch's files may have more than the index says).
// Follows symbolic links, as the hub's cache needs; anything but a regular file is refused.
TensorFolder read_tensor_folder(const std::string& path);

}  // namespace ds
