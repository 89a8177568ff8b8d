#include "checkpoint/folder_source.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "checkpoint/model_folder.h"
#include "checkpoint/weight_match.h"
#include "core/base/dtype.h"
#include "core/base/error.h"
#include "core/base/half.h"
#include "core/base/log.h"
#include "core/base/shape.h"
#include "core/graph/graph.h"
#include "io/file.h"
#include "io/safetensors.h"
#include "nn/models/hf.h"

namespace ds {
namespace {

// Elements that are read at a time.
constexpr int64_t kFolderBlock = 1 << 16;

class FolderSource : public StateSource {
 public:
  explicit FolderSource(const std::string& folder) {
    form = "model";
    info.path = folder;
    kinds = {"master"};
    const HfModel model = build_hf_model(folder, 1, 1);
    for (const Parameter& param : model.graph.params) {
      names.push_back(param.name);
      shapes.emplace_back();
      for (const Dim& dim : model.graph.type(param.value).shape.dims())
        shapes.back().push_back(dim.extent);
    }
    match_ = match_weights(names, shapes, folder);
    if (!match_.drawn.empty())
      raise(DS_ERROR_CONFIG, "'{}' lacks '{}' of the model's head", folder,
            TensorName(match_.drawn[0]));
    if (const std::string warning = match_.warning(); !warning.empty())
      log_line(LogLevel::warning, "'" + folder + "': " + warning);
    files_ = open_files(match_.folder);
  }

  void read(size_t, ParamId param, int64_t begin, int64_t count, float* out) override {
    const WeightSource& source = match_.sources[match_.of_param[param]];
    const SafetensorEntry& entry = match_.entry(source);
    const int64_t unit = size_of(entry.dtype);
    for (int64_t at = begin, end = begin + count; at < end;) {
      const int64_t n = std::min(end - at, kFolderBlock);
      files_[source.file].read(bytes_.data(), static_cast<size_t>(n * unit),
                               entry.begin + at * unit);
      widen(entry.dtype, bytes_.data(), n, out);
      out += n;
      at += n;
    }
  }

 private:
  WeightMatch match_;
  std::vector<File> files_;
  std::vector<std::byte> bytes_ = std::vector<std::byte>(kFolderBlock * sizeof(float));
};

}  // namespace

std::unique_ptr<StateSource> open_folder_source(const std::string& folder) {
  return std::make_unique<FolderSource>(folder);
}

}  // namespace ds
