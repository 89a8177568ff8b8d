#include "nn/models/model.h"

#include "core/base/error.h"
#include "nn/models/gpt.h"

namespace ds {

Graph model_graph(const Config& config) {
  if (config.model.family.empty()) {
    raise(DS_ERROR_CONFIG, "model.family must be given when there is no graph, got none");
  }
  return build_gpt(config.model, config.micro_batch * config.sequence, config.sequence);
}

}  // namespace ds
