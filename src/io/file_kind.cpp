#include "io/file_kind.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <vector>

#include "core/base/ascii.h"

namespace ds {
namespace {

constexpr int64_t kMostAdapter = 1 << 20;

// Names the kind of a file; "" where it cannot be read.
std::string kind_of(const std::string& path, Wanted wanted) {
  try {
    return content_kind(head_of(path), wanted);
  } catch (const Error&) {
    return "";
  }
}

// "owner/name" or "name" as the hub has them.
bool is_hub_name(std::string_view name) {
  auto of_name = [](char c) {
    return is_ascii_letter(c) || is_ascii_digit(c) || c == '-' || c == '_' || c == '.' || c == '/';
  };
  bool plain = !name.empty() && std::all_of(name.begin(), name.end(), of_name);
  bool edges = plain && name.front() != '.' && name.front() != '/' && name.back() != '/';
  return edges && std::count(name.begin(), name.end(), '/') <= 1;
}

std::string absent_hint(const std::string& path) {
  if (!is_hub_name(path)) return "";
  return fmt::format(
      "; if it is a model's name on the Hugging Face hub: libds downloads nothing, so get it by "
      "`hf download "
      "{} --local-dir DIR` and give DIR",
      path);
}

std::string adapter_hint(const std::string& path) {
  std::string base = "its base model";
  try {
    const Json config = read_json(path + "/adapter_config.json", kMostAdapter);
    const Json* name = config.is_object() ? config.find("base_model_name_or_path") : nullptr;
    if (name && name->is_string() && !name->string().empty())
      base = fmt::format("its base model '{}'", name->string());
  } catch (const Error&) {
    // What it says is only a help.
  }
  return fmt::format(
      "; it is an adapter of PEFT: merge it into {} (merge_and_unload(), save_pretrained()) and "
      "give the "
      "merged "
      "folder",
      base);
}

struct Suffix {
  std::string_view end;
  const char* hint;
};
constexpr Suffix kSuffixes[] = {
    {".gguf",
     "is a model of llama.cpp (GGUF): libds reads the model's folder on the hub, with config.json "
     "and "
     "safetensors"},
    {".msgpack",
     "has weights of Flax: load it in Transformers (from_flax=True) and save it by "
     "save_pretrained(), which writes safetensors"},
    {".h5",
     "has weights of TensorFlow: load it in Transformers (from_tf=True) and save it by "
     "save_pretrained(), which writes safetensors"},
    {".ckpt.index",
     "has weights of TensorFlow: load it in Transformers (from_tf=True) and save it by "
     "save_pretrained(), which writes safetensors"},
    {".onnx", "is a model of ONNX: libds reads config.json with safetensors"},
    {".nemo", "is a model of NeMo: export it to a Hugging Face folder"},
    {".pth", "has weights in their author's form: convert them to a Hugging Face folder"},
    {".pt", "is a file of torch of unknown form: save the model by save_pretrained()"},
    {".safetensors",
     "is not called as Transformers calls weights (model.safetensors, or an index beside shards)"},
};

std::string content_hint(const std::string& path) {
  std::vector<std::string> names;
  try {
    names = list_folder(path);
  } catch (const Error&) {
    return "";
  }
  auto has = [&](std::string_view name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  if (names.empty()) return "; the folder is empty";
  if (has("adapter_config.json")) return adapter_hint(path);
  if (has("snapshots") && has("refs"))
    return "; it is an entry of the hub's cache: give one of the folders in its snapshots/";
  for (const Suffix& suffix : kSuffixes) {
    auto found = std::find_if(names.begin(), names.end(),
                              [&](auto& name) { return name.ends_with(suffix.end); });
    if (found != names.end()) return fmt::format("; its '{}' {}", *found, suffix.hint);
  }
  return "";
}

}  // namespace

std::string head_of(const std::string& path) {
  File file(path, File::Mode::read);
  std::string head(static_cast<size_t>(std::min<int64_t>(file.size(), kContentHead)), '\0');
  file.read(head.data(), head.size(), 0);
  return head;
}

void raise_fault(const std::string& path, const Error& fault, Wanted wanted) {
  if (fault.status() == DS_ERROR_IO || fault.status() == DS_ERROR_NOT_FOUND) throw fault;
  const std::string kind = kind_of(path, wanted);
  if (!kind.empty()) raise(DS_ERROR_CORRUPT, "{}: is {}", path, kind);
  ds_status status =
      fault.status() == DS_ERROR_UNSUPPORTED ? DS_ERROR_UNSUPPORTED : DS_ERROR_CORRUPT;
  const std::string_view message = fault.what();
  if (message.starts_with(path)) raise(status, "{}", message);
  raise(status, "{}: {}", path, message);
}

Json read_json(const std::string& path, int64_t limit) {
  const std::string text = read_file(path, limit);
  try {
    return Json::parse(text, path);
  } catch (const Error& fault) {
    raise_fault(path, fault, Wanted::json);
  }
}

std::string read_text(const std::string& path, int64_t limit) {
  std::string text = read_file(path, limit);
  const std::string kind =
      content_kind(std::string_view(text).substr(0, kContentHead), Wanted::text);
  if (!kind.empty()) raise(DS_ERROR_CORRUPT, "{}: is {}", path, kind);
  return text;
}

std::string folder_hint(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code code;
  const fs::file_status status = fs::status(path, code);
  if (!fs::exists(status)) return absent_hint(path);
  if (fs::is_directory(status)) return content_hint(path);
  const std::string kind = kind_of(path, Wanted::text);
  return !kind.empty() ? "; it is " + kind : "; it is a file: give the folder that it is in";
}

}  // namespace ds
