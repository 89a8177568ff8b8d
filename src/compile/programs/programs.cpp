#include "compile/programs/programs.h"

#include <algorithm>
#include <iterator>

namespace ds {
namespace {

// A kind of program and its emitter. make_program() looks the emitter up in the table of these
// rows.
struct ProgramRow {
  ProgramKind kind;
  Program (*make)(const Making&, const ProgramKey&);
};

constexpr ProgramRow kRows[] = {
    {ProgramKind::init, make_init},     {ProgramKind::refresh, make_refresh},
    {ProgramKind::step, make_step},     {ProgramKind::update, make_update},
    {ProgramKind::eval, make_eval},     {ProgramKind::infer, make_infer},
    {ProgramKind::decode, make_decode}, {ProgramKind::gather, make_gather},
    {ProgramKind::reduce, make_reduce},
};

}  // namespace

Program make_program(const Making& making, const ProgramKey& key) {
  const auto* row = std::find_if(std::begin(kRows), std::end(kRows),
                                 [&](const ProgramRow& r) { return r.kind == key.kind; });
  return row->make(making, key);
}

void make_programs(Plan& plan, const Config& config, const Machine& machine,
                   const FinishOptions& finish) {
  plan.memory = {};
  for (auto& [key, program] : plan.programs) {
    program = make_program({plan, config, machine, finish}, key);
    plan.memory.add(program);
  }
}

Program finished(const Making& making, ProgramBuilder& builder, const StepBuffers& buffers) {
  Program program = builder.take();
  finish_program(program, making.plan.zero, making.config, buffers, making.machine, making.finish);
  return program;
}

}  // namespace ds
