#include "checkpoint/open_source.h"

#include <algorithm>
#include <cstdint>
#include <span>

#include "checkpoint/deepspeed_source.h"
#include "checkpoint/folder.h"
#include "checkpoint/manifest.h"
#include "checkpoint/pieces.h"
#include "checkpoint/state_files.h"
#include "core/base/error.h"
#include "core/graph/graph.h"

namespace ds {
namespace {

// A checkpoint of libds; all its hashes are compared first.
class OwnSource : public StateSource {
 public:
  explicit OwnSource(const std::string& path) : files_(path) {
    const Manifest& manifest = files_.manifest();
    form = "libds";
    info = manifest.info;
    info.path = path;
    kinds = manifest.kinds;
    for (const ManifestTensor& tensor : manifest.tensors) {
      names.push_back(tensor.name);
      shapes.push_back(tensor.shape);
    }
    files_.open(kinds.size());
    files_.check_pieces();
  }

  void read(size_t kind, ParamId param, int64_t begin, int64_t count, float* out) override {
    files_.read(kind, names[param], begin, count,
                [&](std::span<const float> values) { out = std::copy(values.begin(), values.end(), out); });
  }

 private:
  StateFiles files_;
};

}  // namespace

std::unique_ptr<StateSource> open_source(const std::string& path) {
  std::string folder = find_deepspeed(path);
  if (!folder.empty()) return open_deepspeed(folder);
  try {
    return std::make_unique<OwnSource>(find_checkpoint(path));
  } catch (const Error& error) {
    if (error.status() != DS_ERROR_NOT_FOUND) throw;
    raise(DS_ERROR_NOT_FOUND,
          "'{}' is no checkpoint of DeepSpeed or libds, and no folder with one (DeepSpeed's has a file "
          "'latest' "
          "that names it)",
          path);
  }
}

}  // namespace ds
