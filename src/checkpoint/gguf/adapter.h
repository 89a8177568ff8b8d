#pragma once
#include <memory>
#include <string>

#include "checkpoint/adapter_source.h"

namespace ds {

// Adapters in llama.cpp's form: a GGUF file of the type "adapter", whose tensors are called as
// those of the base with ".lora_a" and ".lora_b" after the name, and whose product is scaled by
// adapter.lora.alpha / rank.

// Returns whether `path` is a GGUF file with an adapter. Errors are those of read_gguf_header().
bool is_gguf_adapter(const std::string& path);

// Opens such a file. `base` is the model folder or the GGUF file of its base. Throws
// DS_ERROR_UNSUPPORTED for another kind of adapter, and DS_ERROR_CONFIG if a tensor does not fit
// the base; messages name the file.
std::unique_ptr<AdapterSource> open_gguf_adapter(const std::string& path, const std::string& base);

// Writes such a file, with matrices of the type `type`, one of written_gguf_type(). A factor that
// differs from alpha / rank of the file is multiplied into B. Throws DS_ERROR_UNSUPPORTED, naming
// it, for what the form cannot hold: parameters of the base (modules_to_save, bias) and DoRA.
void write_gguf_adapter(AdapterSource& source, const std::string& base, const std::string& type,
                        const std::string& path);

}  // namespace ds
