#include "checkpoint/folder_source.h"

#include <cstdint>
#include <vector>

#include "checkpoint/model_folder.h"
#include "checkpoint/open_weights.h"
#include "checkpoint/stored_weights.h"
#include "core/base/error.h"
#include "core/base/log.h"
#include "core/graph/graph.h"
#include "io/gguf.h"
#include "nn/models/hf.h"

namespace ds {
namespace {

class FolderSource : public StateSource {
 public:
  explicit FolderSource(const std::string& path) {
    form = is_gguf(path) ? "gguf" : "model";
    info.path = path;
    kinds = {"master"};
    const HfModel model = build_hf_model(path, 1, 1);
    const ParamTable params(model.graph);
    names = params.names;
    shapes = params.shapes;
    weights_ = open_weights(names, shapes, path);
    for (ParamId p : names.ids()) {
      if (!weights_->has(p))
        raise(DS_ERROR_CONFIG, "'{}' lacks '{}' of the model's head", path, TensorName(names[p]));
    }
    if (const std::string warning = weights_->warning(); !warning.empty())
      log_line(LogLevel::warning, "'" + path + "': " + warning);
  }

  void read(size_t, ParamId param, int64_t begin, int64_t count, float* out) override {
    weights_->read(param, begin, count, out);
  }

 private:
  std::unique_ptr<StoredWeights> weights_;
};

}  // namespace

std::unique_ptr<StateSource> open_folder_source(const std::string& path) {
  return std::make_unique<FolderSource>(path);
}

}  // namespace ds
