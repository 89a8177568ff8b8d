// Programs that write persistent state: initial values, and parameters computed from masters.
#include "compile/plan.h"
#include "compile/programs/programs.h"
#include "core/program/builder.h"
#include "zero/init.h"
#include "zero/step_buffers.h"

namespace ds {

Program make_init(const Making& making, const ProgramKey&) {
  const Plan& plan = making.plan;
  StepBuffers buffers;
  ProgramBuilder builder = begin_program(plan.zero, "init", plan.graph.bound, buffers);
  emit_init(builder, plan.zero, plan.graph.params);
  return finished(making, builder, buffers);
}

Program make_refresh(const Making& making, const ProgramKey&) {
  const Plan& plan = making.plan;
  StepBuffers buffers;
  ProgramBuilder builder = begin_program(plan.zero, "refresh", plan.graph.bound, buffers);
  emit_refresh(builder, plan.zero);
  return finished(making, builder, buffers);
}

}  // namespace ds
