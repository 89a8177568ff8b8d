// The programs of a training step in each of its forms, and of an update without the rest of a
// step.
#include <cstdint>
#include <vector>

#include "compile/finish_program.h"
#include "compile/lower.h"
#include "compile/plan.h"
#include "compile/programs/programs.h"
#include "compile/schedule.h"
#include "core/program/builder.h"
#include "optim/optimizer.h"
#include "update/loss_and_norm.h"
#include "update/onebit/adam.h"
#include "update/update.h"
#include "zero/step_buffers.h"

namespace ds {
namespace {

// Compiles a step in one way of writing it out. Returns false if no stretch of the step can
// represent the micro-steps that are not written out.
bool write_step(Program& out, const Making& making, StepForm form, const WrittenOut& way) {
  const Plan& plan = making.plan;
  const auto micros = static_cast<int32_t>(way.micros);
  StepBuffers buffers;
  ProgramBuilder builder = begin_program(plan.zero, form_name(form), plan.graph.bound, buffers);
  const bool reduced = form == StepForm::reduced;
  // Gradients that are not reduced stay on their rank, which then needs the norms of all its
  // granules.
  if (!reduced || plan.zero.compression.on()) {
    const Tier near = builder.buffer(plan.zero.norms).tier;
    buffers.own_norms = builder.transient("own_norms", DS_DTYPE_F64, own_norms_of(plan.zero), near);
  }
  Lowering lowering(plan.graph, plan.zero, plan.zero.memory.inputs, builder, buffers);
  const std::vector<Action> schedule =
      plan.asked.schedule.empty() ? accumulate_in_turn(micros) : plan.asked.schedule;
  check_schedule(schedule, micros);
  lowering.run(schedule, micros);
  emit_losses(builder, plan.zero);
  if (reduced) {
    emit_update(builder, plan.zero, making.config, buffers.own_norms);
  } else {
    emit_compressed_update(builder, plan.zero, making.config, form, buffers.own_norms);
  }
  out = builder.take();
  FinishOptions finish = making.finish;
  finish.repeated = way.repeated;
  return finish_program(out, plan.zero, making.config, buffers, making.machine, finish);
}

}  // namespace

Program make_step(const Making& making, const ProgramKey& key) {
  const PlanPrograms& asked = making.plan.asked;
  const int64_t accumulation = making.config.accumulation;
  const int64_t written_out = asked.schedule.empty() ? asked.written_out : accumulation;
  Program program;
  // The last way writes out all micro-steps and always succeeds.
  for (const WrittenOut& way : ways_to_write(accumulation, written_out)) {
    if (write_step(program, making, key.form, way)) break;
  }
  return program;
}

Program make_update(const Making& making, const ProgramKey&) {
  const Plan& plan = making.plan;
  StepBuffers buffers;
  ProgramBuilder builder = begin_program(plan.zero, "update", plan.graph.bound, buffers);
  emit_update(builder, plan.zero, making.config);
  return finished(making, builder, buffers);
}

}  // namespace ds
