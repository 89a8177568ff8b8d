#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "support/conformance.h"

namespace ds::test {

// Operations on more columns than those of tests/support/cases.cpp: rows of several warps, heads of
// every entry.
std::vector<OpCase> wide_op_cases();
// Instructions on operands of sizes, and with values, that tests/support/cases.cpp has none for.
std::vector<InstructionCase> device_instruction_cases();

// An attention and its backward, drawn at random: heads and their groups, widths, lengths, windows,
// masks, documents, dropout.
std::vector<OpCase> draw_attention(uint64_t number);
// A sequence's bits do not depend on what lies before and behind it, nor on how tiles fall; a row
// that sees one key is that key's value, and gives no gradient to the score. "" or what differs.
using RunCase = std::function<std::vector<Tensor>(const OpCase&, DType)>;
std::string own_bits_of_sequences(const RunCase& run, DType dtype, bool causal);
// NaN in keys and values that are masked, and, of 16-bit operands, in other sequences, reaches
// nothing; NaN in a query reaches its row, and no other. "" or what differs.
std::string bounds_of_nan(const RunCase& run, DType dtype);
// Rows of norms, losses and softmax, of widths about those at which a block has another warp or no
// room in its registers for more: a row's bits do not depend on where it lies, nor on the rows
// beside it, and NaN in a row reaches all of what is made of it, and nothing else. "" or what
// differs.
std::string own_bits_of_rows(const RunCase& run, DType dtype);
// A head that keeps its logits has the loss of `linear` and `cross_entropy`, within `tolerance` of
// its size: 0 where both products add up in one order. "" or what differs.
std::string kept_head(const RunCase& run, DType dtype, double tolerance);

}  // namespace ds::test
