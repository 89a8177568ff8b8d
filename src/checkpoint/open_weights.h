#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/stored_weights.h"
#include "core/base/ids.h"
#include "core/graph/graph.h"
#include "nn/adapter_keys.h"

namespace ds {

// Opens the weights at `path`, a model folder, the folder of an adapter or a GGUF file, for the
// parameters of a model, given by name and shape. Makes all checks that need no data; errors are
// those of match_weights(), match_adapter() and open_gguf_weights(). `adapter` is the name that the
// adapter of a folder has in the model.
std::unique_ptr<StoredWeights> open_weights(const IdVector<ParamId, std::string>& names,
                                            const IdVector<ParamId, std::vector<int64_t>>& shapes,
                                            const std::string& path,
                                            const std::string& adapter = kOwnAdapter);

// Returns whether `path` is a GGUF file or a folder with weights.
bool has_weights(const std::string& path);

}  // namespace ds
