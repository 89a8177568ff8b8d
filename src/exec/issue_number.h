#pragma once
#include <cstdint>

#include "core/program/program.h"

namespace ds {

// Returns the issue number of an instruction in a round. Numbers increase in issue order.
// Instructions after the repeated stretch are numbered as if they belonged to the last round of the
// stretch.
inline int64_t issue_number(const Program& program, const Position& at) {
  const bool behind = at.instr >= program.repeat.end;
  const int64_t round = behind ? program.repeat.rounds - 1 : at.round;
  return round * static_cast<int64_t>(program.instrs.size()) + at.instr.number();
}

// Returns the position of an issue number; the inverse of issue_number().
inline Position issued_at(const Program& program, int64_t number) {
  const auto size = static_cast<int64_t>(program.instrs.size());
  const InstrId instr(number % size);
  return {instr, program.repeat.has(instr) ? static_cast<int32_t>(number / size) : 0};
}

}  // namespace ds
