// Recognizes paths that people often give by mistake: names and addresses of the Hugging Face hub,
// adapters, folders of other applications, and files of another kind. A hint only improves the
// message that refuses a path, so no function fails: if something cannot be read, there is no hint.
#include "core/base/path_kind.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <vector>

#include "core/base/ascii.h"
#include "core/base/contains.h"
#include "core/base/content_kind.h"
#include "core/base/descriptor.h"
#include "core/base/interrupted.h"

namespace ds {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostAdapter = 1 << 16;

// Returns the first bytes of a regular file, or "" if it cannot be read. O_NONBLOCK keeps the call
// from blocking if the path has become a pipe since the check.
std::string beginning_of(const fs::path& path, size_t most) {
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return "";
  constexpr int kFlags = O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
  int fd = uninterrupted([&] { return above_standard(::open(path.c_str(), kFlags)); });
  if (fd < 0) return "";
  std::string out(most, '\0');
  ssize_t got = uninterrupted([&] { return ::pread(fd, out.data(), out.size(), 0); });
  ::close(fd);
  out.resize(got < 0 ? 0 : static_cast<size_t>(got));
  return out;
}

// Returns a description of a file's content, or "" if it is plain text or unknown, or if the file
// cannot be read.
std::string kind_of(const fs::path& path) {
  const std::string head = beginning_of(path, kContentHead);
  std::error_code code;
  const bool empty = fs::file_size(path, code) == 0 && !code;
  return head.empty() && !empty ? "" : content_kind(head, Wanted::text);
}

// ------------------------------------------------------------------ nothing at the path

// Returns whether a text has the form "owner/name" or "name", as models and data sets of the hub
// do.
bool is_hub_name(std::string_view name) {
  auto of_name = [](char c) {
    return is_ascii_letter(c) || is_ascii_digit(c) || c == '-' || c == '_' || c == '.' || c == '/';
  };
  bool plain = !name.empty() && std::ranges::all_of(name, of_name);
  bool edges = plain && name.front() != '.' && name.front() != '/' && name.back() != '/';
  return edges && std::ranges::count(name, '/') <= 1;
}

// Returns the advice to download a name of the hub, which may end in "@" and a revision.
std::string download_of(std::string_view name, bool data) {
  const size_t at = std::min(name.find('@'), name.size());
  const std::string revision =
      at < name.size() ? fmt::format(" --revision {}", name.substr(at + 1)) : "";
  return fmt::format(
      "libds downloads nothing, so get it by `hf download {}{}{} --local-dir DIR` and give DIR",
      name.substr(0, at), data ? " --repo-type dataset" : "", revision);
}

// Returns "owner/name" or "name" from the part of an address after its host, or "" for a page under
// spaces/, docs/ or papers/.
std::string_view hub_name_in(std::string_view rest) {
  const std::string_view owner = rest.substr(0, rest.find_first_of("/@?#"));
  for (std::string_view other : {"spaces", "docs", "papers"}) {
    if (owner == other) return "";
  }
  rest.remove_prefix(owner.size());
  if (!rest.starts_with("/")) return owner;
  const std::string_view second = rest.substr(1, rest.find_first_of("/@?#", 1) - 1);
  for (std::string_view page : {"", "tree", "resolve", "blob", "raw", "discussions", "commits"}) {
    if (second == page) return owner;
  }
  return {owner.data(), owner.size() + 1 + second.size()};
}

// An address, which people give in place of a path. `rest` is the part after the scheme and, for an
// address of the hub, after its host.
struct Address {
  bool hub = false;
  std::string_view rest;
};

// Recognizes addresses such as https://huggingface.co/owner/name/tree/main, hf://owner/name and
// s3://bucket/key.
std::optional<Address> address_of(std::string_view path) {
  std::string_view rest = path;
  const bool scheme = path.find("://") != path.npos;
  if (scheme) rest.remove_prefix(path.find("://") + 3);
  bool hub = scheme && path.starts_with("hf:");
  for (std::string_view host : {"huggingface.co/", "www.huggingface.co/", "hf.co/"}) {
    if (hub || !rest.starts_with(host)) continue;
    rest.remove_prefix(host.size());
    hub = true;
  }
  // Without "://" only the hub's own host names distinguish an address from a path.
  if (!hub && !scheme) return std::nullopt;
  return Address{hub, rest};
}

// Returns a hint for a path that begins with file:// or ~, which this program does not resolve,
// whether it reads or creates the path. Returns "" for other paths.
std::string shell_hint(std::string_view path) {
  if (path.starts_with("file://")) return "; leave file:// out and give the path alone";
  if (path.starts_with("~"))
    return "; only a shell replaces ~ by the home folder: write the whole path";
  return "";
}

// Returns a hint for an address that is to be read.
std::string address_hint(std::string_view path) {
  const std::optional<Address> address = address_of(path);
  if (!address) return "";
  if (!address->hub)
    return "; it is an address, and libds reads files of this machine only: copy it here first";
  std::string_view rest = address->rest;
  const bool data = rest.starts_with("datasets/");
  if (data) rest.remove_prefix(9);
  const std::string_view name = hub_name_in(rest);
  if (name.empty())
    return "; it is an address of the Hugging Face hub, and libds reads files of this machine only";
  return "; it is an address of the Hugging Face hub: " + download_of(name, data);
}

// Returns a hint that names the first dangling symbolic link among the path and the folders above
// it.
std::string link_hint(const std::string& path) {
  std::error_code code;
  for (fs::path at(path); !at.empty() && at != at.root_path(); at = at.parent_path()) {
    if (!fs::is_symlink(fs::symlink_status(at, code)) || fs::exists(at, code) || code) continue;
    const fs::path target = fs::read_symlink(at, code);
    return fmt::format(
        "; '{}' is a symbolic link to '{}', which does not exist: a copy or download was not "
        "whole, so get it again, for example by `hf download`",
        at.string(), target.string());
  }
  return "";
}

// Returns a hint for a path where nothing exists. A hub name looks like a relative path. A path of
// that form is treated as a hub name unless its parent folder exists, it has the extension of a
// text file, or it has no parent folder and the caller does not look for a model.
std::string absent_hint(const std::string& path, Sought sought) {
  if (std::string hint = open_hint(path); !hint.empty()) return hint;
  // A hub name may end in "@" and a revision.
  const size_t at = path.find('@');
  const bool revised = at != path.npos && path.find('/') < at && is_hub_name(path.substr(at + 1));
  if (!is_hub_name(revised ? path.substr(0, at) : path)) return "";
  const fs::path name(path);
  std::error_code ignored;
  const bool below = name.has_parent_path(),
             found = below && fs::exists(name.parent_path(), ignored);
  const bool model =
      sought == Sought::model || sought == Sought::weights || sought == Sought::tokenizer;
  const std::array<std::string_view, 7> files{".json",  ".yaml", ".yml", ".txt",
                                              ".jsonl", ".md",   ".py"};
  const bool file = contains(files, name.extension().string());
  if (found || file || (!model && !below)) return "";
  const bool data = sought == Sought::data;
  return fmt::format("; if it is a {} name on the Hugging Face hub: {}",
                     data ? "data set's" : "model's", download_of(path, data));
}

// ------------------------------------------------------------------ a folder

// The end of a file's name, and what the hint says about a folder with such a file.
struct Suffix {
  std::string_view end;
  const char* hint;
};
constexpr Suffix kOtherModels[] = {
    {".gguf", "is a model of llama.cpp (GGUF): give this file in place of the folder"},
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
};
constexpr Suffix kDataFiles[] = {{".parquet", "is data, not a model"},
                                 {".arrow", "is data, not a model"},
                                 {".jsonl", "is data, not a model"},
                                 {".csv", "is data, not a model"},
                                 {".tokens", "is data, not a model"}};
constexpr Suffix kOtherData[] = {
    {".parquet",
     "is a Parquet file: write it as text, .jsonl or token files (docs/reference/data.md)"},
    {".arrow",
     "is an Arrow file: write it as text, .jsonl or token files (docs/reference/data.md)"},
    {".safetensors", "has weights of a model, not text"},
    {".gguf", "is a model of llama.cpp (GGUF), not text"},
    {".gz", "is compressed: unpack it first"},
    {".zst", "is compressed: unpack it first"},
    {".zip", "is an archive: unpack it first"}};

// The names in a folder, and hints derived from them.
class Folder {
 public:
  explicit Folder(const fs::path& path) : path_(path) {
    std::error_code code;
    for (fs::directory_iterator entry(path, code), end; !code && entry != end;
         entry.increment(code))
      names_.push_back(entry->path().filename().string());
    known_ = !code;
    std::ranges::sort(names_);
  }

  // Returns a hint if this looks like a folder that `libds train --model` accepts, or like an
  // adapter.
  std::string model() const {
    if (has("adapter_config.json")) return adapter();
    if (!has("config.json") || !begins({"model.safetensors", "model-0", "pytorch_model"}))
      return "";
    return "; it is the folder of a Hugging Face model: `libds train --model` takes it";
  }

  // Returns the hint of the most specific explanation. For weights, a model's own files come before
  // other formats.
  std::string hint(Sought sought) const {
    if (!known_) return "";
    if (names_.empty()) return "; the folder is empty";
    if (has("adapter_config.json")) return adapter();
    if (has("snapshots") && has("refs"))
      return "; it is an entry of the hub's cache: give one of the folders in its snapshots/";
    const bool of_model = sought == Sought::model || sought == Sought::weights;
    if (std::string saved = of_model || sought == Sought::config ? checkpoint() : "";
        !saved.empty())
      return saved;
    const std::string weights = weights_file();
    if (sought == Sought::model && !weights.empty() && !has("config.json")) {
      return fmt::format(
          "; its '{}' has weights, but config.json is missing: get it from where the weights come "
          "from",
          weights);
    }
    if (sought == Sought::weights && !weights.empty()) return misnamed(weights);
    if (sought == Sought::data) return first_of(kOtherData);
    if (std::string other = first_of(kOtherModels);
        !other.empty() && (of_model || sought == Sought::tokenizer))
      return other;
    if (of_model || sought == Sought::tokenizer) return of_model ? first_of(kDataFiles) : "";
    return model();
  }

 private:
  bool has(std::string_view name) const { return contains(names_, name); }

  // Returns whether the name of any file begins with one of these texts.
  bool begins(std::initializer_list<std::string_view> texts) const {
    return std::ranges::any_of(names_, [&](const std::string& name) {
      return std::ranges::any_of(texts, [&](auto text) { return name.starts_with(text); });
    });
  }

  // Returns the file that looks most like the weights of a model. golden.safetensors does not
  // count, since it belongs to `libds verify`.
  std::string weights_file() const {
    std::string other;
    for (const std::string& name : names_) {
      const bool tensors = name.ends_with(".safetensors"), torch = name.ends_with(".bin");
      if ((tensors && name.starts_with("model")) || (torch && name.starts_with("pytorch_model")))
        return name;
      if (tensors && name != "golden.safetensors" && other.empty()) other = name;
    }
    return other;
  }

  // Returns the hint for weights that exist but are not found: one of several files without its
  // index, or a file of another name.
  static std::string misnamed(const std::string& name) {
    if (name.find("-of-") == name.npos) {
      return fmt::format(
          "; its '{}' does not have the name that Transformers gives to weights "
          "(model.safetensors, or an index beside shards)",
          name);
    }
    const bool torch = name.ends_with(".bin");
    return fmt::format(
        "; its '{}' is one of several files, but {}.index.json, which lists their tensors, is "
        "missing: get it from where the files come from",
        name, torch ? "pytorch_model.bin" : "model.safetensors");
  }

  // Recognizes the results of training: a run or checkpoint of libds, or a checkpoint of DeepSpeed.
  std::string checkpoint() const {
    if (has("config.json") && has("checkpoints")) {
      return fmt::format("; it is a run of libds: `libds train --resume` goes on with it{}",
                         has("model") ? ", and its model/ has the trained model" : "");
    }
    if (has("manifest.json")) {
      return "; it is a checkpoint of libds: `libds convert FROM TO --to fp32 --like MODEL_DIR` "
             "makes a model of it";
    }
    auto step = [](const std::string& name) { return name.starts_with("global_step"); };
    if (has("latest") && std::ranges::any_of(names_, step)) {
      return "; it is a checkpoint of DeepSpeed: `libds convert FROM TO --to fp32 --like "
             "MODEL_DIR` makes a model of it";
    }
    return "";
  }

  // Returns the hint for an adapter. The name of the base model is only an extra, so a plain search
  // for its key suffices.
  std::string adapter() const {
    std::string base = "its base model";
    const std::string text = beginning_of(path_ / "adapter_config.json", kMostAdapter);
    const std::string_view key = "\"base_model_name_or_path\"";
    const size_t at = text.find(key),
                 colon = at == text.npos ? at : text.find(':', at + key.size());
    const size_t open = colon == text.npos ? colon : text.find_first_not_of(" \t\r\n", colon + 1);
    const size_t close =
        open == text.npos || text[open] != '"' ? text.npos : text.find('"', open + 1);
    if (close != text.npos && close > open + 1)
      base = fmt::format("its base model '{}'", text.substr(open + 1, close - open - 1));
    return fmt::format(
        "; it is an adapter of PEFT: give the folder that `libds merge` makes of it and {}, or "
        "name "
        "the adapter with the key adapter.folder",
        base);
  }

  // Returns the hint of the first suffix in the list that a file of the folder has, or "" if no
  // file has one.
  template <size_t N>
  std::string first_of(const Suffix (&suffixes)[N]) const {
    for (const Suffix& suffix : suffixes) {
      auto ends = [&](const std::string& name) { return name.ends_with(suffix.end); };
      auto found = std::ranges::find_if(names_, ends);
      if (found != names_.end()) return fmt::format("; its '{}' {}", *found, suffix.hint);
    }
    return "";
  }

  fs::path path_;
  std::vector<std::string> names_;
  bool known_ = false;
};

// Returns a hint for a file. Readers of configurations and data expect a file, all others a folder.
std::string file_hint(const fs::path& path, Sought sought) {
  const std::string kind = kind_of(path);
  if (!kind.empty()) return "; it is " + kind;
  if (sought == Sought::config || sought == Sought::data) return "";
  const std::array<std::string_view, 9> parts{".json",      ".safetensors", ".bin",
                                              ".model",     ".jinja",       ".index",
                                              "merges.txt", "vocab.txt",    "latest"};
  const std::string name = path.filename().string();
  const bool part = std::any_of(parts.begin(), parts.end(),
                                [&](std::string_view end) { return name.ends_with(end); });
  return part ? "; it is a file: give the folder that it is in"
              : "; it is a file, and a folder is wanted";
}

}  // namespace

// A parent that is a file explains "Not a directory", which the system reports for the whole path.
std::string open_hint(const std::string& path) {
  for (const auto& hint_of : {shell_hint, address_hint}) {
    if (std::string hint = hint_of(path); !hint.empty()) return hint;
  }
  if (std::string hint = link_hint(path); !hint.empty()) return hint;
  std::error_code code;
  fs::path above = fs::path(path).parent_path();
  while (!above.empty() && above != above.root_path() && !fs::exists(above, code))
    above = above.parent_path();
  if (above.empty() || !fs::is_regular_file(above, code)) return "";
  const std::string kind = kind_of(above);
  return fmt::format("; '{}' is {}", above.string(), kind.empty() ? "a file, not a folder" : kind);
}

// A file or folder may have such a name, but nobody makes one on purpose.
std::string made_hint(const std::string& path) {
  const fs::path parts(path);
  std::error_code ignored;
  if (parts.empty() || fs::exists(*parts.begin(), ignored)) return "";
  if (std::string hint = shell_hint(path); !hint.empty()) return hint;
  return address_of(path) ? "; it is an address, and libds writes files of this machine only" : "";
}

std::string model_hint(const std::string& folder) { return Folder(folder).model(); }

std::string path_hint(const std::string& path, Sought sought) {
  std::error_code code;
  const fs::file_status status = fs::status(path, code);
  if (!fs::exists(status)) return absent_hint(path, sought);
  if (fs::is_directory(status)) return Folder(path).hint(sought);
  return file_hint(path, sought);
}

}  // namespace ds
