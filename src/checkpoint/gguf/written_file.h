#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "io/file.h"
#include "io/gguf.h"
#include "io/gguf_types.h"

namespace ds {

// The parts of writing that GGUF files of models and of adapters have in common.

// Returns the type of a tensor in a file whose matrices are of the type `wanted`: vectors, norms,
// position tables and routers are f32, and rows that blocks of q8_0 do not divide are f16.
const GgufType& stored_gguf_type(const GgufTensor& tensor, std::string_view wanted);

// Adds the keys of the type of matrices.
void add_gguf_type(std::string_view type, GgufMetadata& metadata);

// Returns the name for people of a model or adapter at `path`.
std::string shown_gguf_name(const std::string& path);

// Throws DS_ERROR_CONFIG if values, the elements of a tensor from `begin` on, are beyond the range
// of its type. `source` is where they come from.
void check_gguf_range(const GgufTensor& tensor, const std::string& source, int64_t begin,
                      std::span<const float> values);

// Makes a file that appears at once and whole: calls fill() with a temporary file.
void make_gguf_file(const std::string& path, const std::function<void(File&)>& fill);

}  // namespace ds
