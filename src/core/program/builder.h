#pragma once
#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/program/program.h"

namespace ds {

// Grows a program. Passes that insert instructions build a new list and splice it in.
class ProgramBuilder {
 public:
  explicit ProgramBuilder(Program program) : program_(std::move(program)) {
    for (const Buffer& b : program_.buffers) uses_[b.name] = 1;
  }

  // A new transient buffer; the name gets a suffix ".k" when it is taken.
  BufferId transient(const std::string& name, DType dtype, int64_t numel, Tier tier);
  Instr& emit(Op op, std::vector<Operand> operands, Attrs attrs = {}, MicroId micro = MicroId(0)) {
    return emit(make_instr(op, std::move(operands), std::move(attrs), micro));
  }
  Instr& emit(Instr instr);
  void end_segment(Phase phase, MicroId micro = none);

  const Buffer& buffer(BufferId id) const { return program_.buffers[id]; }
  Program& program() { return program_; }
  Program take() { return std::move(program_); }

 private:
  Program program_;
  std::unordered_map<std::string, int> uses_;
};

// A flat operand of `numel` elements starting at element `first` of the buffer.
Operand flat(const Buffer& buffer, BufferId id, int64_t first, int64_t numel, Access access);

// Rounds or widens its first operand into its second, which is of type `dtype`.
Instr cast_instr(std::vector<Operand> operands, DType dtype, MicroId micro = MicroId(0));

// Instructions to put before and after each instruction of a program.
class Splice {
 public:
  explicit Splice(const Program& program)
      : before_(program.instrs.size()), after_(program.instrs.size()) {}
  void before(InstrId index, Instr instr) { before_[index].push_back(std::move(instr)); }
  void after(InstrId index, Instr instr) { after_[index].push_back(std::move(instr)); }
  void after_front(InstrId index, Instr instr) {
    after_[index].insert(after_[index].begin(), std::move(instr));
  }
  // Rebuilds program.instrs; segment ends move along. An inserted instruction takes the segment of
  // its anchor.
  void apply(Program& program);

 private:
  IdVector<InstrId, std::vector<Instr>> before_, after_;
};

// Sets Operand::last on the last use of every transient buffer that is not kept, and clears it
// elsewhere.
void mark_last_uses(Program& program);
// Numbers the collectives in issue order.
void number_collectives(Program& program);

}  // namespace ds
