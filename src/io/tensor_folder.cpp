#include "io/tensor_folder.h"

#include <fmt/core.h>

#include <cstdint>
#include <map>
#include <unordered_map>

#include "core/base/error.h"
#include "core/base/json.h"
#include "io/file.h"

namespace ds {
namespace {

constexpr int64_t kMaxIndex = int64_t{32} << 20;

using WeightMap = std::unordered_map<std::string, std::string>;  // tensor -> shard

void check_shard_name(const std::string& name, const std::string& tensor) {
  bool plain = name.find('/') == std::string::npos && name.find('\0') == std::string::npos &&
               name.ends_with(".safetensors") && !name.starts_with('.');
  if (!plain) {
    raise(DS_ERROR_CORRUPT, "tensor '{}' is in '{}', which is no .safetensors file of the folder",
          TensorName(tensor), name);
  }
}

WeightMap parse_index(const std::string& text) {
  const Json document = Json::parse(text, "index");
  WeightMap map;
  for (const auto& [tensor, shard] : document.at("weight_map").object()) {
    check_shard_name(shard.string(), tensor);
    map.emplace(tensor, shard.string());
  }
  if (map.empty()) raise(DS_ERROR_CORRUPT, "weight_map has no tensor");
  return map;
}

WeightMap read_index(const std::string& path) {
  std::string text = read_file(path, kMaxIndex);
  try {
    return parse_index(text);
  } catch (const Error& error) {
    raise(DS_ERROR_CORRUPT, "{}: {}", path, error.what());
  }
}

void check_shards(const TensorFolder& folder, const WeightMap& map) {
  size_t found = 0;
  for (size_t f = 0; f < folder.files.size(); ++f) {
    for (const SafetensorEntry& entry : folder.files[f].header.entries) {
      auto it = map.find(entry.name);
      if (it != map.end() && it->second == folder.files[f].name) {
        ++found;
        continue;
      }
      raise(DS_ERROR_CORRUPT, "{}: tensor '{}' is {}", folder.file_path(f), TensorName(entry.name),
            it == map.end() ? fmt::format("not in {}", kTensorIndex)
                            : fmt::format("in '{}' by {}", it->second, kTensorIndex));
    }
  }
  if (found == map.size()) return;
  for (size_t f = 0; f < folder.files.size(); ++f) {
    for (const auto& [tensor, shard] : map) {
      if (shard != folder.files[f].name || folder.files[f].header.find(tensor) != nullptr) continue;
      raise(DS_ERROR_CORRUPT, "{}: no tensor '{}', which {} says is there", folder.file_path(f),
            TensorName(tensor), kTensorIndex);
    }
  }
}

}  // namespace

TensorFolder read_tensor_folder(const std::string& path) {
  TensorFolder folder;
  folder.path = path;
  std::string single = fmt::format("{}/{}", path, kTensorFile),
              index = fmt::format("{}/{}", path, kTensorIndex);
  // A name that is there but cannot be followed (a loop of links) is an error of its own, not absence.
  if (name_exists(single) || !name_exists(index)) {
    folder.files.push_back({std::string(kTensorFile), read_safetensors_header(single)});
    return folder;
  }
  folder.sharded = true;
  WeightMap map = read_index(index);
  std::map<std::string, std::string> shards;  // -> a tensor in it
  for (const auto& [tensor, shard] : map) shards.emplace(shard, tensor);
  for (const auto& [shard, tensor] : shards) {
    folder.files.push_back({shard, read_safetensors_header(path + "/" + shard)});
  }
  check_shards(folder, map);
  return folder;
}

}  // namespace ds
