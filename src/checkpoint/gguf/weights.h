#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/stored_weights.h"
#include "core/base/ids.h"
#include "core/graph/graph.h"

namespace ds {

// Opens the weights of a GGUF file for the parameters of a model, given by name and shape; those of
// adapters are not stored. The values have the order of a model folder. Every other parameter must
// have its tensor, of its shape, and the file must have no further tensors. Throws DS_ERROR_CORRUPT
// for a damaged file, DS_ERROR_UNSUPPORTED for an architecture or element type that libds lacks,
// and DS_ERROR_CONFIG for another model; messages name the file.
std::unique_ptr<StoredWeights> open_gguf_weights(
    const IdVector<ParamId, std::string>& names,
    const IdVector<ParamId, std::vector<int64_t>>& shapes, const std::string& path);

}  // namespace ds
