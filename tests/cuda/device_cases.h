#pragma once
#include <vector>

#include "support/conformance.h"

namespace ds::test {

// Operations on more columns than those of tests/support/cases.cpp: rows of several warps, heads of every
// entry.
std::vector<OpCase> wide_op_cases();
// Instructions on operands of sizes, and with values, that tests/support/cases.cpp has none for.
std::vector<InstructionCase> device_instruction_cases();

}  // namespace ds::test
