#pragma once
#include <cstdint>
#include <string>

#include "core/base/json.h"

namespace ds {

// The target form of a conversion and its options.
struct ConvertRequest {
  // "libds", "universal" (DeepSpeed's layout), "fp32" (weights only), "model" (a model folder of a
  // GGUF file), "gguf" or, for the folder of an adapter, "merged" and "unmerged": a model with the
  // adapter added to its weights or taken out. "" means "gguf" if the name to write ends with
  // .gguf, "model" if the source is a GGUF file, and otherwise "libds".
  std::string form;
  // Tag of the checkpoint to write; only for the form "libds". "" means no tag.
  std::string tag;
  // For the form "fp32": a model folder whose file layout the output copies, as in save_weights().
  // For the form "gguf": the model folder of a checkpoint, which has config.json and the tokenizer.
  // For "merged" and "unmerged": the model folder; "" means the base that adapter_config.json
  // names.
  std::string like;
  // Only for the form "fp32", unless `like` has weights: the largest number of bytes of tensors in
  // a file, as in WeightExtras.
  int64_t file_bytes = 5'000'000'000;
  // Only for the form "universal": whether step counts are written as tensors, as torch's
  // optimizers store them.
  bool step_tensor = false;
  // Only for the forms "model" and "gguf": the type of matrices, "f32", "f16", "bf16" or, for
  // "gguf", "q8_0". "" means the type that loses nothing, or bf16 if the source has another one.
  std::string type;
};

// Opens `from`, a checkpoint, a model folder or a GGUF file, and writes it to `to` in the form that
// `request` names. Returns a description of the result. The form "libds" adds a checkpoint to the
// folder `to`; for the other forms, `to` must be empty or not exist. A model folder can only become
// a GGUF file, and a GGUF file a model folder or another GGUF file. A model with an adapter becomes
// a GGUF file if `to` ends with .gguf.
Json convert_checkpoint(const std::string& from, const std::string& to,
                        const ConvertRequest& request);

}  // namespace ds
