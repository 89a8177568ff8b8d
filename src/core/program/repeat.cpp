#include "core/program/repeat.h"

#include <cstdint>

#include "core/base/error.h"

namespace ds {

Operand in_round(Operand operand, int32_t round) {
  operand.begin += round * operand.stride;
  return operand;
}

Position Program::end_of(Phase phase, MicroId micro) const {
  for (const Segment& s : segments) {
    if (s.phase != phase) continue;
    InstrId last = s.end - 1;
    // The rounds of a segment belong to micro-steps s.micro, s.micro + micros, and so on.
    int32_t rounds = repeat.has(last) ? repeat.rounds : 1, later = micro - s.micro;
    bool here = later % repeat.micros == 0 && later >= 0 && later / repeat.micros < rounds;
    if (here) return next({last, later / repeat.micros});
  }
  raise(DS_ERROR_INTERNAL, "program {} has no segment '{}'", name,
        Segment{phase, micro, {}}.name());
}

int64_t Program::runs(InstrId instr) const {
  if (!repeat.has(instr)) return takes_part(instr) ? 1 : 0;
  if (instrs[instr].when.mask == 0) return repeat.rounds;
  int64_t count = 0;
  for (int32_t round = 0; round < repeat.rounds; ++round)
    count += takes_part({instr, round}) ? 1 : 0;
  return count;
}

ShortRun::ShortRun(const Program& program)
    : program_(program), length_(program.repeat.end - program.repeat.begin) {
  outside_ = program.instrs.past().number() - length_;
  // The first two rounds contain every pair of consecutive rounds; the last round is paired with
  // the instructions after the stretch.
  for (int32_t round : {0, 1}) {
    if (round < program.repeat.rounds) rounds_.push_back(round);
  }
  if (program.repeat.rounds > 2) rounds_.push_back(program.repeat.rounds - 1);
}

ShortRun::Entry ShortRun::at(int32_t number) const {
  int32_t inside = number - program_.repeat.begin.number();
  if (inside < 0) return {InstrId(number), 0, 0};
  if (inside >= copies() * length_) return {InstrId(number - (copies() - 1) * length_), 0, 0};
  auto copy = static_cast<size_t>(inside / length_);
  return {program_.repeat.begin + inside % length_, static_cast<int>(copy), rounds_[copy]};
}

int32_t ShortRun::number(InstrId instr, int copy) const {
  if (instr < program_.repeat.begin) return instr.number();
  if (program_.repeat.has(instr)) return instr.number() + copy * length_;
  return instr.number() + (copies() - 1) * length_;
}

int32_t ShortRun::awaited(const Entry& entry, const Wait& wait) const {
  // A wait for a repeated instruction means its last round if it comes from outside the stretch or
  // from the next run.
  bool inside = program_.repeat.has(entry.instr) && !wait.run_before;
  if (wait.round_before && entry.copy == 0) return -1;
  return number(wait.instr, inside ? entry.copy - (wait.round_before ? 1 : 0) : copies() - 1);
}

Wait ShortRun::wait_for(const Entry& entry, int32_t earlier) const {
  Entry other = at(earlier);
  bool both = program_.repeat.has(entry.instr) && program_.repeat.has(other.instr);
  return {other.instr, false, both && other.copy < entry.copy};
}

}  // namespace ds
