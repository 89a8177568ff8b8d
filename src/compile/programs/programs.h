#pragma once
#include "compile/finish_program.h"
#include "compile/plan.h"
#include "core/config/config.h"
#include "core/program/builder.h"
#include "core/program/program.h"
#include "zero/step_buffers.h"

namespace ds {

// The arguments of an emitter. The plan's graphs, layout and persistent buffers are complete.
struct Making {
  const Plan& plan;
  const Config& config;
  const Machine& machine;
  FinishOptions finish;
};

// Compiles one program: the emitter of its kind emits the linear order and calls finish_program().
Program make_program(const Making& making, const ProgramKey& key);
// Compiles every program for which the plan has a key, and sets Plan::memory.
void make_programs(Plan& plan, const Config& config, const Machine& machine,
                   const FinishOptions& finish);

// Takes an emitter's program from the builder, runs finish_program() and returns the result.
Program finished(const Making& making, ProgramBuilder& builder, const StepBuffers& buffers);

// The emitters, one for each kind of program.
Program make_init(const Making& making, const ProgramKey& key);
Program make_refresh(const Making& making, const ProgramKey& key);
Program make_step(const Making& making, const ProgramKey& key);
Program make_update(const Making& making, const ProgramKey& key);
Program make_eval(const Making& making, const ProgramKey& key);
Program make_infer(const Making& making, const ProgramKey& key);
Program make_decode(const Making& making, const ProgramKey& key);
Program make_gather(const Making& making, const ProgramKey& key);
Program make_reduce(const Making& making, const ProgramKey& key);

}  // namespace ds
