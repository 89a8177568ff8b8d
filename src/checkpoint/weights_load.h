#pragma once
#include <string>

#include "checkpoint/state_access.h"

namespace ds {

// Weights of a Hugging Face model folder: model.safetensors, or the shards of
// model.safetensors.index.json; where neither is, pytorch_model.bin, or the shards of
// pytorch_model.bin.index.json.
//
// Tensors are matched to parameters by name; names of older files are understood (without the
// model's prefix, LayerNorm.gamma), and so is a tied tensor that is stored under its other name, or
// twice if both are equal. Constants that old files hold beside the parameters (causal masks, rope
// frequencies) are passed over. One warning names other tensors that the model has no parameter
// for, and parameters of its head that the folder lacks, which keep their values.

// Masters from the folder's f32, f16 or bf16 tensors; each rank reads only the elements that it
// holds. Headers of all files, names, dtypes and shapes are checked before anything is read:
// DS_ERROR_CORRUPT for a damaged file, DS_ERROR_CONFIG for a missing or different tensor,
// DS_ERROR_NOT_FOUND for a missing file. Optimizer states keep their values. Collective: if one
// rank fails, every rank throws its error. Checkpoints::load_weights also renews the compute
// copies; call that one for an engine.
void load_weights(StateAccess& state, const std::string& folder);

}  // namespace ds
