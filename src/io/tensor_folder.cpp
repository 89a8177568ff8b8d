#include "io/tensor_folder.h"

#include <fmt/core.h>

#include <cstdint>
#include <map>
#include <unordered_map>

#include "core/base/error.h"
#include "core/base/json_read.h"
#include "core/base/path_kind.h"
#include "io/file.h"
#include "io/file_kind.h"
#include "io/torch_weights.h"

namespace ds {
namespace {

constexpr int64_t kMaxIndex = int64_t{32} << 20;

// The content of an index: the shard of each tensor, by name.
using WeightMap = std::unordered_map<std::string, std::string>;

// A file format of model folders: the name of its index, the suffix of its files, and the function
// that reads a file.
struct FolderForm {
  std::string_view index, suffix;
  SafetensorHeader (*read)(const std::string& path);
};
constexpr FolderForm kSafetensors{kTensorIndex, ".safetensors", read_safetensors_header};
constexpr FolderForm kTorch{kTorchIndex, ".bin", read_torch_weights};

// Throws unless the name of a shard, which comes from the index, is a plain file name in the
// folder.
void check_shard_name(const FolderForm& layout, const std::string& path, const std::string& name,
                      const std::string& tensor) {
  bool plain = name.find('/') == std::string::npos && name.find('\0') == std::string::npos &&
               name.ends_with(layout.suffix) && !name.starts_with('.');
  if (!plain) {
    raise(DS_ERROR_CORRUPT,
          "{}: weight_map: tensor '{}' is in '{}', which is not a {} file of the folder", path,
          TensorName(tensor), name, layout.suffix);
  }
}

WeightMap parse_index(const FolderForm& layout, const JsonReader& document) {
  WeightMap map;
  const JsonReader tensors = document.at("weight_map");
  for (const auto& [tensor, shard] : tensors.members()) {
    check_shard_name(layout, document.name(), shard.text(), tensor);
    map.emplace(tensor, shard.text());
  }
  if (map.empty()) raise(DS_ERROR_CORRUPT, "{}: has no tensor", tensors.name());
  return map;
}

WeightMap read_index(const FolderForm& layout, const std::string& path) {
  const Json document = read_json(path, kMaxIndex);
  try {
    return parse_index(layout, JsonReader(path, document, ": "));
  } catch (const Error& error) {
    raise(DS_ERROR_CORRUPT, "{}", error.what());
  }
}

// Throws if the shard that the index names for a tensor does not exist.
void check_shard(const FolderForm& layout, const std::string& path, const std::string& tensor) {
  if (name_exists(path)) return;
  raise(DS_ERROR_NOT_FOUND,
        "{}: does not exist, but {} says that it has tensor '{}': a copy or download was "
        "incomplete, so get the file from the source of the others",
        path, layout.index, TensorName(tensor));
}

// Throws unless the index lists each tensor of a file with that file, and the files contain each
// tensor of the index. A torch file may contain tensors that the index lacks. A missing tensor is
// searched for, to name it, only if the numbers of tensors differ.
void check_shards(const FolderForm& layout, const TensorFolder& folder, const WeightMap& map) {
  size_t found = 0;
  for (size_t f = 0; f < folder.files.size(); ++f) {
    for (const SafetensorEntry& entry : folder.files[f].header.entries) {
      auto it = map.find(entry.name);
      if (it != map.end() && it->second == folder.files[f].name) {
        ++found;
        continue;
      }
      if (folder.torch && it == map.end()) continue;
      raise(DS_ERROR_CORRUPT, "{}: tensor '{}' is {}", folder.file_path(f), TensorName(entry.name),
            it == map.end() ? fmt::format("not in {}", layout.index)
                            : fmt::format("in '{}' by {}", it->second, layout.index));
    }
  }
  if (found == map.size()) return;
  for (size_t f = 0; f < folder.files.size(); ++f) {
    for (const auto& [tensor, shard] : map) {
      if (shard != folder.files[f].name || folder.files[f].header.find(tensor) != nullptr) continue;
      raise(DS_ERROR_CORRUPT, "{}: has no tensor '{}', but {} says that it does",
            folder.file_path(f), TensorName(tensor), layout.index);
    }
  }
}

}  // namespace

bool has_tensors(const std::string& path) {
  // A link that cannot be followed, such as a cycle of links, counts as a file, so that reading the
  // folder reports the error.
  for (std::string_view name : {kTensorFile, kTensorIndex, kTorchFile, kTorchIndex}) {
    if (name_exists(fmt::format("{}/{}", path, name))) return true;
  }
  return false;
}

TensorFolder read_tensor_folder(const std::string& path) {
  auto has = [&](std::string_view name) { return name_exists(fmt::format("{}/{}", path, name)); };
  TensorFolder folder;
  folder.path = path;
  if (!has_tensors(path)) {
    raise(DS_ERROR_NOT_FOUND, "'{}' has no weights, neither {} nor {}, with or without an index{}",
          path, kTensorFile, kTorchFile, path_hint(path, Sought::weights));
  }
  folder.torch = !has(kTensorFile) && !has(kTensorIndex);
  const FolderForm& layout = folder.torch ? kTorch : kSafetensors;
  std::string_view single = folder.torch ? kTorchFile : kTensorFile;
  if (has(single)) {
    folder.files.push_back({std::string(single), layout.read(fmt::format("{}/{}", path, single))});
    return folder;
  }
  folder.sharded = true;
  WeightMap map = read_index(layout, fmt::format("{}/{}", path, layout.index));
  // A tensor of each shard, by the name of the shard. The map sorts the shards, as
  // TensorFolder::files requires.
  std::map<std::string, std::string> shards;
  for (const auto& [tensor, shard] : map) shards.emplace(shard, tensor);
  for (const auto& [shard, tensor] : shards) {
    check_shard(layout, path + "/" + shard, tensor);
    folder.files.push_back({shard, layout.read(path + "/" + shard)});
  }
  check_shards(layout, folder, map);
  return folder;
}

}  // namespace ds
