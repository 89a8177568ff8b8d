#pragma once
#include <cstdint>
#include <vector>

#include "checkpoint/gguf/families.h"

namespace ds {

// Returns, for each row of a parameter in a model folder, the row of the GGUF tensor that holds it.
// An empty list means that the rows have the same order. `heads` is the number of heads whose rows
// the parameter has. Throws DS_ERROR_CONFIG if the rows cannot be divided.
std::vector<int64_t> gguf_rows(GgufOrder order, int64_t rows, int64_t heads);

// Returns the inverse of such a list.
std::vector<int64_t> inverse_rows(const std::vector<int64_t>& rows);

}  // namespace ds
