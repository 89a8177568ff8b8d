#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "support/conformance.h"

namespace ds::test {

// Returns op cases with more columns than those of tests/support/cases.cpp: rows of several warps,
// and head extents for every entry.
std::vector<OpCase> wide_op_cases();
// Returns instruction cases with operand sizes and values that tests/support/cases.cpp lacks.
std::vector<InstructionCase> device_instruction_cases();

// Draws attention cases and their backward at random: heads and groups, head extents, lengths,
// windows, masks, documents, dropout.
std::vector<OpCase> draw_attention(uint64_t number);
// Runs a case in one type and returns its results.
using RunCase = std::function<std::vector<Tensor>(const OpCase&, DType)>;
// Checks that a sequence's bits depend neither on the other sequences nor on where tiles begin, and
// that a row which sees a single key equals that key's value and has a zero gradient of its score.
// Returns the first difference, or "".
std::string own_bits_of_sequences(const RunCase& run, DType dtype, bool causal);
// Checks that NaN in masked keys and values (and, with 16-bit operands, in other sequences) affects
// nothing, and that NaN in a query affects only its own row. Returns the first difference, or "".
std::string bounds_of_nan(const RunCase& run, DType dtype);
// Checks rows of norms, losses and softmax, with widths around those at which a block needs another
// warp or runs out of registers. A row's bits must depend neither on its position nor on its
// neighbours, and NaN in a row must affect all results of that row and nothing else. Returns the
// first difference, or "".
std::string own_bits_of_rows(const RunCase& run, DType dtype);
// Checks that a head that keeps its logits has the loss of `linear` and `cross_entropy`, within
// `tolerance` relative to its size (0 if both sum their products in the same order). Returns the
// first difference, or "".
std::string kept_head(const RunCase& run, DType dtype, double tolerance);

}  // namespace ds::test
