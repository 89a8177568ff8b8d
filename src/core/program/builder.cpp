#include "core/program/builder.h"

#include <cstdint>

#include "core/base/error.h"

namespace ds {

BufferId ProgramBuilder::transient(const std::string& name, DType dtype, int64_t numel, Tier tier) {
  // uses_ counts the requests for each name. A name with a suffix may itself have been requested
  // for another buffer, so it is also counted.
  int use = uses_[name]++;
  std::string unique = name;
  while (use > 0) {
    unique = name + "." + std::to_string(use);
    if (uses_[unique]++ == 0) break;
    use = uses_[name]++;
  }
  return program_.buffers.add({std::move(unique), dtype, numel, tier, Residency::transient});
}

Instr& ProgramBuilder::emit(Instr instr) {
  instr.segment = program_.segments.past();
  return program_.instrs.emplace_back(std::move(instr));
}

void ProgramBuilder::end_segment(Phase phase, MicroId micro) {
  program_.segments.push_back({phase, micro, program_.instrs.past()});
}

Instr make_instr(const InstrDef& def, std::vector<Operand> operands, Attrs attrs, MicroId micro) {
  Instr in{.def = &def, .queue = def.queue};
  in.operands = std::move(operands);
  in.attrs = std::move(attrs);
  in.micro = micro;
  return in;
}

Operand flat(const Buffer& buffer, BufferId id, int64_t first, int64_t numel, Access access) {
  ensure(first >= 0 && first + numel <= buffer.numel,
         "operand {}..{} must lie within %{}, which has {} elements", first, first + numel,
         buffer.name, buffer.numel);
  return {id, first * size_of(buffer.dtype), {buffer.dtype, Shape{Dim(numel)}}, access, false};
}

Instr cast_instr(std::vector<Operand> operands, DType dtype, MicroId micro) {
  return make_instr(instruction("cast"), std::move(operands),
                    {{"dtype", std::string(dtype_name(dtype))}}, micro);
}

void Splice::apply(Program& program) {
  IdVector<InstrId, Instr> out;
  SegmentId segment(0);
  for (InstrId i : program.instrs.ids()) {
    // A segment ends before the insertions at the next instruction, so that every insertion stays
    // in the segment of its anchor.
    while (program.segments.has(segment) && program.segments[segment].end <= i) {
      program.segments[segment++].end = out.past();
    }
    SegmentId anchor = program.instrs[i].segment;
    for (Instr& in : before_[i]) {
      in.segment = anchor;
      out.push_back(std::move(in));
    }
    out.push_back(std::move(program.instrs[i]));
    for (Instr& in : after_[i]) {
      in.segment = anchor;
      out.push_back(std::move(in));
    }
  }
  while (program.segments.has(segment)) program.segments[segment++].end = out.past();
  program.instrs = std::move(out);
}

void mark_last_uses(Program& program) {
  // The loop runs backwards, so the first use of a buffer that it meets is the last one.
  IdVector<BufferId, char> seen(program.buffers.size(), 0);
  for (InstrId i = program.instrs.last(); i.exists(); --i) {
    for (Operand& o : program.instrs[i].operands) {
      const Buffer& buffer = program.buffers[o.buffer];
      o.last = buffer.residency == Residency::transient && !buffer.kept() && !seen[o.buffer];
      seen[o.buffer] = 1;
    }
  }
}

void number_collectives(Program& program) {
  int32_t next = 0;
  for (Instr& in : program.instrs) in.comm_order = in.queue == Queue::comm ? next++ : -1;
}

}  // namespace ds
