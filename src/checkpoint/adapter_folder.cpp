// Adapter folders, as PEFT reads and writes them.
//
// A tensor of the file is called "base_model.model." followed by the name of its parameter without
// the adapter's name: "X.lora_A.weight" holds "X.lora_A.default.weight". Magnitudes are called
// "X.lora_magnitude_vector". Modules that were trained as a whole have their own names. The bias of
// a layer with an adapter is "X.base_layer.bias".
#include "checkpoint/adapter_folder.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "checkpoint/agree.h"
#include "checkpoint/weights_save.h"
#include "core/base/error.h"
#include "core/base/hash.h"
#include "core/config/parse_config.h"
#include "core/config/refuse.h"
#include "io/file.h"
#include "io/file_kind.h"
#include "io/gguf.h"
#include "io/safetensors.h"
#include "io/tensor_folder.h"
#include "nn/adapter_names.h"

namespace ds {
namespace {

constexpr int64_t kMostConfig = 1 << 24;
// Number of bytes that are hashed at a time.
constexpr size_t kHashBlock = size_t{4} << 20;
constexpr std::string_view kBaseLayer = ".base_layer", kEnd = ".weight", kBias = ".bias",
                           kMagnitude = ".lora_magnitude_vector";

Json read_document(const std::string& folder) {
  const std::string path = folder + "/" + kAdapterConfig;
  Json document = read_json(path, kMostConfig);
  if (!document.is_object())
    raise(DS_ERROR_CORRUPT, "{}: must be an object, got {}", path, document.kind());
  return document;
}

// Returns whether the parameter belongs to an adapter of another name.
bool is_others(const std::string& param, const std::string& adapter) {
  const std::string_view name = split_adapter_param(param).adapter;
  return !name.empty() && name != adapter;
}

// Returns the names under which the parameters of a model with the adapter may be stored.
std::unordered_map<std::string, ParamId> stored_names_of(
    const IdVector<ParamId, std::string>& names, const std::string& adapter) {
  std::unordered_map<std::string, ParamId> out;
  for (ParamId p : names.ids()) {
    if (is_others(names[p], adapter)) continue;
    const std::string stored = stored_adapter_name(names[p], false);
    out.emplace(stored, p);
    // Folders of Transformers 4 have the name of the model folder.
    const std::string_view adapted = split_adapter_param(names[p]).module,
                           module = adapted.empty() ? module_of(names[p]) : adapted;
    const std::string_view theirs = peft_module(module);
    if (theirs != module)
      out.emplace(fmt::format("{}{}{}", kAdapterPrefix, module,
                              stored.substr(kAdapterPrefix.size() + theirs.size())),
                  p);
    if (names[p].ends_with(kBias)) out.emplace(stored_adapter_name(names[p], true), p);
  }
  return out;
}

// Returns a whole number as an integer, which programs expect of alpha.
Json plain_number(const Json& value) {
  const bool whole = value.is_number() && value.number() == std::floor(value.number());
  return whole ? Json(value.integer()) : value;
}

// Returns whether the parameter is saved with the adapter.
bool is_saved(const AdapterKeys& keys, const std::string& param, bool adapted) {
  if (is_adapter_param(param)) return !is_others(param, keys.name);
  if (is_saved_module(keys, module_of(param))) return true;
  if (keys.bias == "none" || !param.ends_with(kBias)) return false;
  return keys.bias == "all" || adapted;
}

// Returns keys in which the head of GPT-NeoX has its name in PEFT, if the model has such a head.
Json with_peft_names(const Json& keys, const IdVector<ParamId, std::string>& names) {
  constexpr std::string_view kHead = "embed_out";
  const bool has =
      std::ranges::any_of(names, [&](const std::string& name) { return module_of(name) == kHead; });
  if (!has) return keys;
  std::string text = keys.dump();
  for (size_t at = 0; (at = text.find(kHead, at)) != text.npos;)
    text.replace(at, kHead.size(), peft_module(kHead));
  return Json::parse(text);
}

// Returns the names of the layers that have an adapter.
std::unordered_set<std::string> adapted_modules(const IdVector<ParamId, std::string>& names) {
  std::unordered_set<std::string> out;
  for (const std::string& name : names) {
    if (is_adapter_param(name)) out.insert(adapted_module(name));
  }
  return out;
}

void hash_file(const std::string& path, Hash128& hash) {
  const File file(path, File::Mode::read);
  const int64_t bytes = file.size();
  std::vector<std::byte> block(kHashBlock);
  for (int64_t at = 0; at < bytes; at += std::ssize(block)) {
    const auto n = static_cast<size_t>(std::min<int64_t>(std::ssize(block), bytes - at));
    file.read(block.data(), n, at);
    hash.update(block.data(), n);
  }
}

}  // namespace

IdVector<ParamId, char> saved_with_adapter(const AdapterKeys& keys,
                                           const IdVector<ParamId, std::string>& names) {
  const std::unordered_set<std::string> adapted = adapted_modules(names);
  IdVector<ParamId, char> out;
  for (const std::string& name : names)
    out.push_back(is_saved(keys, name, adapted.contains(std::string(module_of(name)))));
  return out;
}

bool is_adapter_folder(const std::string& folder) {
  return name_exists(folder + "/" + kAdapterConfig) && !has_tensors(folder);
}

AdapterKeys read_adapter_config(const std::string& folder) {
  const std::string path = folder + "/" + kAdapterConfig;
  if (!name_exists(path))
    raise(DS_ERROR_NOT_FOUND, "{}: does not exist, so '{}' is not the folder of an adapter", path,
          folder);
  Json document, section = read_document(folder);
  if (!section.find("peft_type"))
    raise(DS_ERROR_CONFIG, "{}: peft_type is missing; only \"LORA\" is supported", path);
  document.set("train_micro_batch_size_per_gpu", 1);
  document.set("adapter", std::move(section));
  try {
    return parse_config(document, 1).get<AdapterKeys>();
  } catch (const Error& error) {
    raise(error.status(), "{}: {}", path, error.what());
  }
}

std::string adapter_base(const std::string& folder) {
  const Json document = read_document(folder);
  const Json* base = document.find("base_model_name_or_path");
  return base && base->is_string() ? base->string() : "";
}

std::string base_hash(const std::string& path) {
  Hash128 hash;
  if (is_gguf(path)) {
    hash_file(path, hash);
    return hash.hex();
  }
  const TensorFolder weights = read_tensor_folder(path);
  for (size_t f = 0; f < weights.files.size(); ++f) {
    hash.update(weights.files[f].name);
    hash_file(weights.file_path(f), hash);
  }
  return hash.hex();
}

namespace {

// Returns the keys of the folder `folder`, which the key `path` of a configuration names.
AdapterKeys keys_of_folder(const std::string& path, const std::string& folder) {
  try {
    AdapterKeys keys = read_adapter_config(folder);
    keys.folder = folder;
    return keys;
  } catch (const Error& error) {
    raise(error.status(), "{}: {}", KeyName(path), error.what());
  }
}

// Reads the folders of frozen adapters. An adapter with its own copies of parameters of the base is
// refused, because all adapters share the base.
void take_others(AdapterKeys& keys) {
  if (!keys.others.empty() && keys.trains_base())
    refuse("adapter.others",
           "must not be given with modules_to_save or bias, which train parameters of the base "
           "that all adapters share");
  for (AdapterKeys& other : keys.others) {
    const std::string path = "adapter.others", name = other.name;
    other = keys_of_folder(path, other.folder);
    other.name = name;
    if (other.trains_base())
      refuse(path,
             "'{}' holds parameters of the base (modules_to_save or bias), which all "
             "adapters share; `libds merge` makes a model of it",
             other.folder);
  }
}

}  // namespace

void take_adapter_folder(Config& config) {
  AdapterKeys& keys = config.get<AdapterKeys>();
  if (keys.folder.empty()) return take_others(keys);
  for (const auto& [path, origin] : config.origins) {
    if (!path.starts_with("adapter.") || path == "adapter.folder" || path == "adapter.type" ||
        path.starts_with("adapter.others"))
      continue;
    refuse(path, "must not be given with adapter.folder \"{}\", whose {} has it", keys.folder,
           kAdapterConfig);
  }
  std::vector<AdapterKeys> others = std::move(keys.others);
  keys = keys_of_folder("adapter.folder", keys.folder);
  keys.others = std::move(others);
  take_others(keys);
}

std::string stored_adapter_name(const std::string& param, bool adapted) {
  std::string name(kAdapterPrefix);
  if (const AdapterParam parts = split_adapter_param(param); !parts.module.empty())
    return fmt::format("{}{}{}{}", name, peft_module(parts.module), parts.part,
                       parts.part == kMagnitude ? "" : kEnd);
  if (!adapted || !param.ends_with(kBias)) {
    const std::string_view module = module_of(param);
    return fmt::format("{}{}{}", name, peft_module(module), param.substr(module.size()));
  }
  return name + std::string(module_of(param)) + std::string(kBaseLayer) + std::string(kBias);
}

WeightMatch match_adapter(const IdVector<ParamId, std::string>& names,
                          const IdVector<ParamId, std::vector<int64_t>>& shapes,
                          const std::string& folder, const std::string& adapter) {
  const std::string path = folder + "/" + kAdapterFile, pickle = folder + "/adapter_model.bin";
  if (!name_exists(path) && name_exists(pickle))
    raise(DS_ERROR_UNSUPPORTED,
          "{}: is a pickle; only {} is read, which PEFT writes by default (safe_serialization)",
          pickle, kAdapterFile);
  WeightMatch match;
  match.folder.path = folder;
  match.folder.files.push_back({kAdapterFile, read_safetensors_header(path)});
  match.of_param.assign(names.size(), WeightMatch::kNone);
  const auto index = stored_names_of(names, adapter);
  AdapterKeys keys = read_adapter_config(folder);
  keys.name = adapter;
  const std::vector<SafetensorEntry>& entries = match.folder.files[0].header.entries;
  for (size_t e = 0; e < entries.size(); ++e) {
    const auto found = index.find(entries[e].name);
    if (found == index.end())
      raise(DS_ERROR_CONFIG,
            "{}: tensor '{}' belongs to no parameter of the model: the adapter has another base or "
            "other targets",
            KeyName(path), TensorName(entries[e].name));
    const std::string& param = names[found->second];
    if (!is_saved(keys, param, entries[e].name == stored_adapter_name(param, true)))
      raise(DS_ERROR_CONFIG,
            "{}: tensor '{}' is a parameter of the base, but neither modules_to_save nor bias of "
            "{} names it",
            KeyName(path), TensorName(entries[e].name), kAdapterConfig);
    check_stored(entries[e], path, shapes[found->second]);
    match.of_param[found->second] = match.sources.size();
    match.sources.push_back({0, e, found->second});
  }
  for (ParamId p : names.ids()) {
    if (match.of_param[p] != WeightMatch::kNone || split_adapter_param(names[p]).adapter != adapter)
      continue;
    raise(DS_ERROR_CONFIG,
          "{}: tensor '{}' is missing: the adapter has another base or other targets",
          KeyName(path), TensorName(stored_adapter_name(names[p], false)));
  }
  return match;
}

void check_factors(const std::string& folder, const AdapterKeys& keys,
                   const IdVector<ParamId, std::string>& names) {
  const AdapterKeys theirs = read_adapter_config(folder);
  for (const std::string& name : names) {
    const auto [part_of, part, adapter] = split_adapter_param(name);
    const std::string module(part_of);
    if (adapter != keys.name || scale_of(theirs, module) == scale_of(keys, module)) continue;
    raise(DS_ERROR_CONFIG,
          "{}/{}: the adapter of layer '{}' has the factor {} there, but {} in this engine: "
          "lora_alpha, r or use_rslora differs",
          folder, kAdapterConfig, module, scale_of(theirs, module), scale_of(keys, module));
  }
  if (theirs.use_dora == keys.use_dora) return;
  raise(DS_ERROR_CONFIG, "{}/{}: use_dora is {} there, but {} in this engine", folder,
        kAdapterConfig, theirs.use_dora, keys.use_dora);
}

void save_adapter(StateAccess& state, const AdapterKeys& keys, const std::string& folder,
                  const std::string& base) {
  const std::unordered_set<std::string> adapted = adapted_modules(state.param_names());
  WeightExtras extras;
  extras.file = kAdapterFile;
  extras.stored_name = [&](const std::string& param) {
    return stored_adapter_name(param, adapted.contains(std::string(module_of(param))));
  };
  const IdVector<ParamId, char> saved = saved_with_adapter(keys, state.param_names());
  for (ParamId p : saved.ids()) {
    if (saved[p]) extras.order.push_back(p);
  }
  save_weights(state, folder, "", extras);
  agree(state.comm(), "adapter config", [&] {
    if (state.comm().rank() != 0) return;
    Json document;
    document.set("peft_type", "LORA");
    document.set("base_model_name_or_path", base.empty() ? Json() : Json(base));
    document.set("inference_mode", true);
    const Json values = with_peft_names(adapter_json(keys), state.param_names());
    for (const auto& [name, value] : values.object()) {
      const bool pattern = name.ends_with("_pattern") && !name.starts_with("layers");
      document.set(name, pattern && value.is_null() ? Json(Json::Object()) : plain_number(value));
    }
    write_file_atomic(folder + "/" + kAdapterConfig, document.dump(2) + "\n");
  });
}

}  // namespace ds
