#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/base/element_run.h"
#include "core/program/builder.h"
#include "core/program/levels.h"
#include "zero/zero_plan.h"

namespace ds {

// An exchange that replaces f32 tensors by their mean over ranks, at one bit per element with error
// feedback on both sides, emitted as instructions around plain collectives. A rank sends every
// other rank the signs of that rank's chunk and one scale for each tensor (send). Each rank
// averages its chunk and sends the signs and scale of the mean to all (answer). The answers replace
// the tensors (receive). Instructions that do not need the tensors may be emitted in between.
//
// Cost. A rank receives 2 (W - 1) / W bits per element, and 8 bytes per tensor and rank.
//
// Source. Tang et al., "1-bit Adam" (arXiv:2102.02888); DeepSpeed 0.19.6,
// runtime/comm/compressed.py.
class SignExchange {
 public:
  // `tensors` are runs of elements in the buffers that are passed to send() and receive(). The
  // errors of these tensors begin at element 0 of the two error buffers.
  SignExchange(ProgramBuilder& builder, const ZeroPlan& plan, std::string name,
               const RankLevels& levels, std::vector<ElementRun> tensors, BufferId worker_error,
               BufferId server_error);
  void send(const StateRef& from);
  void answer();
  // Writes the answers to the tensors in `to`. Elements between tensors keep their values.
  void receive(const StateRef& to);

 private:
  StateRef transient(const std::string& name, DType dtype, int64_t numel);
  Operand read(const StateRef& of) const;
  Operand write(const StateRef& of) const;
  Operand update(const StateRef& of) const;
  Operand scalars() const;
  Instr& push(Op op, std::vector<Operand> operands, Attrs attrs);
  void collect(Op op, const StateRef& from, const StateRef& to);

  ProgramBuilder& builder_;
  const ZeroPlan& plan_;
  std::string name_;
  int64_t ranks_, stride_;
  std::vector<ElementRun> tensors_;
  BufferId worker_error_, server_error_;
  // The signs received last: one block from each rank.
  StateRef blocks_;
};

}  // namespace ds
