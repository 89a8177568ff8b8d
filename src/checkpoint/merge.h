#pragma once
#include <memory>
#include <string>

#include "checkpoint/state_source.h"

namespace ds {

// Opens the model of `base`, a model folder or a GGUF file, with the adapter of the folder
// `adapter` added to its weights or, with `subtract`, taken out of them. A weight is W + s B A, or
// m / |W + s B A| times that with DoRA, computed in f32; modules_to_save and biases come from the
// adapter. Throws DS_ERROR_CONFIG if the adapter does not fit the base, and for `subtract` if the
// adapter replaces parameters of the base, whose old values no folder has; DS_ERROR_UNSUPPORTED for
// `subtract` of an adapter of DoRA. read() throws if the type of the base cannot hold a value.
std::unique_ptr<StateSource> open_merged(const std::string& adapter, const std::string& base,
                                         bool subtract);

}  // namespace ds
