#include "checkpoint/adapter_source.h"

#include <cstdint>

#include "checkpoint/adapter_folder.h"
#include "checkpoint/model_folder.h"
#include "checkpoint/open_weights.h"
#include "checkpoint/state_access.h"
#include "checkpoint/stored_weights.h"
#include "core/base/ids.h"
#include "core/graph/graph.h"
#include "nn/models/hf.h"
#include "passes/adapters.h"

namespace ds {
namespace {

class FolderAdapter : public AdapterSource {
 public:
  FolderAdapter(const std::string& adapter, const std::string& base) {
    form = "adapter";
    info.path = adapter;
    kinds = {kMasterName};
    keys = read_adapter_config(adapter);
    keys.folder = adapter;
    const ParamTable all(add_adapters(build_hf_model(base, 1, 1).graph, keys));
    weights_ = open_weights(all.names, all.shapes, adapter);
    for (ParamId p : all.names.ids()) {
      if (!weights_->has(p)) continue;
      stored_.push_back(p);
      names.push_back(all.names[p]);
      shapes.push_back(all.shapes[p]);
    }
  }

  void read(size_t, ParamId param, int64_t begin, int64_t count, float* out) override {
    weights_->read(stored_[param], begin, count, out);
  }

 private:
  std::unique_ptr<StoredWeights> weights_;
  // The number in the graph of each parameter of this source.
  IdVector<ParamId, ParamId> stored_;
};

}  // namespace

std::unique_ptr<AdapterSource> open_adapter_source(const std::string& adapter,
                                                   const std::string& base) {
  return std::make_unique<FolderAdapter>(adapter, base);
}

}  // namespace ds
