#pragma once
#include <string>

#include "checkpoint/state_access.h"
#include "nn/adapter_keys.h"

namespace ds {

// Loads the weights of a Hugging Face model folder into the masters: model.safetensors or the
// shards of model.safetensors.index.json, or, if neither exists, pytorch_model.bin or the shards of
// pytorch_model.bin.index.json. A folder with adapter_config.json holds an adapter of PEFT or libds
// instead: only the tensors of the adapter are loaded, and the engine must have all of them. In
// place of a model folder, a GGUF file may be given; codes are expanded.
//
// Tensors are matched to parameters by name. Two older namings are understood: names without the
// model's prefix, and LayerNorm.gamma and beta. A tied tensor may be stored under its other name,
// or under both names if the values are equal. Constants that old files store beside the parameters
// (causal masks, rope frequencies) are ignored. One warning lists the remaining tensors without a
// parameter, and the parameters of the model's head that the folder lacks; those keep their values.
//
// Tensors may be f32, f16 or bf16, and each rank reads only the elements that it holds. The headers
// of all files, names, dtypes and shapes are checked before any data is read. Throws
// DS_ERROR_CORRUPT for a damaged file, DS_ERROR_CONFIG for a missing or different tensor, and
// DS_ERROR_NOT_FOUND for a missing file. Optimizer states keep their values. Collective: if one
// rank fails, every rank throws its error. For an engine, call Checkpoints::load_weights, which
// also updates the compute copies.
// `adapter` is the name that an adapter in the folder has in the engine.
void load_weights(StateAccess& state, const std::string& folder,
                  const std::string& adapter = kOwnAdapter);

}  // namespace ds
