#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/program/program.h"

namespace ds {

// A program under construction, to which buffers, instructions and segments are appended. Passes
// that insert instructions into an existing program use Splice.
class ProgramBuilder {
 public:
  explicit ProgramBuilder(Program program) : program_(std::move(program)) {
    for (const Buffer& b : program_.buffers) uses_[b.name] = 1;
  }

  // Adds a transient buffer. If the name is taken, it gets a suffix ".k".
  BufferId transient(const std::string& name, DType dtype, int64_t numel, Tier tier);
  Instr& emit(Op op, std::vector<Operand> operands, Attrs attrs = {}, MicroId micro = MicroId(0)) {
    return emit(make_instr(op, std::move(operands), std::move(attrs), micro));
  }
  // Emits the instruction of this name, which may be one that add_instruction() added.
  Instr& emit(std::string_view name, std::vector<Operand> operands, Attrs attrs = {}) {
    return emit(make_instr(instruction(name), std::move(operands), std::move(attrs)));
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

// Returns a one-dimensional operand of `numel` elements that starts at element `first` of the
// buffer.
Operand flat(const Buffer& buffer, BufferId id, int64_t first, int64_t numel, Access access);

// Returns an instruction that rounds or widens the first operand into the second, whose type is
// `dtype`.
Instr cast_instr(std::vector<Operand> operands, DType dtype, MicroId micro = MicroId(0));

// A set of instructions to be inserted before and after the instructions of a program.
class Splice {
 public:
  explicit Splice(const Program& program)
      : before_(program.instrs.size()), after_(program.instrs.size()) {}
  void before(InstrId index, Instr instr) { before_[index].push_back(std::move(instr)); }
  void after(InstrId index, Instr instr) { after_[index].push_back(std::move(instr)); }
  // Like after(), but puts the instruction ahead of those already collected after `index`.
  void after_front(InstrId index, Instr instr) {
    after_[index].insert(after_[index].begin(), std::move(instr));
  }
  // Inserts the collected instructions and moves the ends of segments accordingly. An inserted
  // instruction belongs to the segment of the instruction at its index.
  void apply(Program& program);

 private:
  IdVector<InstrId, std::vector<Instr>> before_, after_;
};

// Sets Operand::last at the last use of every transient buffer that is not kept, and clears it
// everywhere else.
void mark_last_uses(Program& program);
// Numbers the collectives in issue order.
void number_collectives(Program& program);

}  // namespace ds
