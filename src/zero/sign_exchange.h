#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/base/element_run.h"
#include "core/program/builder.h"
#include "core/program/levels.h"
#include "zero/policy.h"

namespace ds {

// The mean over ranks of tensors in f32, at one bit an element with error feedback on both sides,
// as instructions around plain collectives. A rank's signs and one scale for each tensor go to all
// others (send), what each makes of its chunk of them goes back (answer), and these are the tensors
// (receive). In between may stand whatever does not need them.
//
// Cost. A rank receives 2 (W - 1) / W bits an element and 8 bytes a tensor and rank.
//
// Source. Tang et al., "1-bit Adam" (arXiv:2102.02888); DeepSpeed 0.19.6,
// runtime/comm/compressed.py.
class SignExchange {
 public:
  // tensors: where they lie in what is sent and received. Errors have room for them, from their
  // begin on.
  SignExchange(ProgramBuilder& builder, const ZeroPlan& plan, std::string name,
               const RankLevels& levels, std::vector<ElementRun> tensors, BufferId worker_error,
               BufferId server_error);
  void send(const StateRef& from);
  void answer();
  void receive(const StateRef& to);  // between tensors it stays as it is

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
  StateRef blocks_;  // one of each rank
};

}  // namespace ds
