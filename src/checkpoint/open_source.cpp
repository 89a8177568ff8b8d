#include "checkpoint/open_source.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>

#include "checkpoint/attachments.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/deepspeed/source.h"
#include "checkpoint/folder.h"
#include "checkpoint/manifest.h"
#include "checkpoint/pieces.h"
#include "checkpoint/state_files.h"
#include "core/base/error.h"
#include "core/base/json.h"
#include "core/base/log.h"
#include "core/base/path_kind.h"
#include "core/graph/graph.h"

namespace ds {
namespace {

// The source of a libds checkpoint. The constructor compares the hashes of all pieces of the opened
// kinds.
class OwnSource : public StateSource {
 public:
  OwnSource(const std::string& path, SourceParts parts) : files_(path) {
    const Manifest& manifest = files_.manifest();
    form = "libds";
    info = manifest.info;
    info.path = path;
    kinds = manifest.kinds;
    if (parts == SourceParts::masters) kinds.resize(std::min<size_t>(kinds.size(), 1));
    for (const ManifestTensor& tensor : manifest.tensors) {
      names.push_back(tensor.name);
      shapes.push_back(tensor.shape);
    }
    files_.open(kinds.size());
    files_.check_pieces();
    if (parts == SourceParts::all) take_attached(manifest);
    find_tied();
  }

  void read(size_t kind, ParamId param, int64_t begin, int64_t count, float* out) override {
    files_.read(kind, names[param], begin, count,
                [&](std::span<const float> values) { out = std::ranges::copy(values, out).out; });
  }

 private:
  // A conversion writes as one rank, which has the attachments of rank 0.
  void take_attached(const Manifest& manifest) {
    if (manifest.attached.empty()) return;
    info.attached = std::make_shared<Attachments>(read_attachments(manifest, info.path, 0));
    if (manifest.attached.size() > 1)
      log_line(LogLevel::warning,
               fmt::format("checkpoint '{}': attachments of ranks other than 0 are left out",
                           info.path));
  }

  // Reads the second names of tied tensors from the client's state, where a conversion from
  // DeepSpeed stores them.
  void find_tied() {
    const Json* at = &info.client;
    for (const char* key : {"deepspeed", "module", "shared_params"})
      at = at && at->is_object() ? at->find(key) : nullptr;
    if (!at || !at->is_object()) return;
    for (const auto& [name, first] : at->object())
      if (first.is_string()) tied.emplace_back(name, first.string());
  }

  StateFiles files_;
};

}  // namespace

std::unique_ptr<StateSource> open_source(const std::string& path, SourceParts parts) {
  std::string folder = find_deepspeed(path);
  if (!folder.empty()) return open_deepspeed(folder, parts);
  try {
    return std::make_unique<OwnSource>(find_checkpoint(path), parts);
  } catch (const Error& error) {
    if (error.status() != DS_ERROR_NOT_FOUND) throw;
    raise(
        DS_ERROR_NOT_FOUND,
        "'{}' is not a checkpoint of DeepSpeed or libds, nor a folder with one (DeepSpeed's has a "
        "file 'latest' that names it){}",
        path, path_hint(path, Sought::checkpoint));
  }
}

}  // namespace ds
