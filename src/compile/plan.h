#pragma once
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "compile/memory_plan.h"
#include "compile/schedule.h"
#include "core/base/shape.h"
#include "core/graph/graph.h"
#include "core/program/choices.h"
#include "core/program/program.h"
#include "optim/optimizer.h"
#include "zero/reduce.h"
#include "zero/zero_plan.h"

namespace ds {

// A request for a program that continues text token by token (docs/adr/0009).
struct DecodeRequest {
  // Number of tokens of the longest text. 0: no such program is requested.
  int64_t positions = 0;
  // Added to the values of the model's input `positions` (HfModel::position_offset).
  int64_t position_offset = 0;
  // The largest number of prompt tokens that are processed at once.
  int64_t chunk = 64;
  // DecodeOptions::by_length.
  bool by_length = false;
};

// A request for a plan: its programs besides training and evaluation, and how programs are
// compiled.
struct PlanPrograms {
  // Compile the program of inference if the graph has a second output.
  bool infer = true;
  DecodeRequest decode;
  // A step with at most this number of micro-steps is written out. In a longer step only some
  // micro-steps are written out, and some of these are repeated.
  int64_t written_out = 16;
  // The order of a step that is written out. Empty: accumulate_in_turn().
  std::vector<Action> schedule;
  // Matrices are cut between rows only: each row is a granule.
  bool row_granules = false;
  // The value that evaluation computes, a scalar like the loss. None: output 0.
  ValueId evaluated;
  // Refuse a plan that exceeds memory_budget. If false, such a plan is compiled with the choice
  // that saves the most memory, so that it can be reported.
  bool within_budget = true;
  // The position in choices_by_memory() of the first choice that is tried. If ranks choose
  // differently, all compile again from the last choice that any of them has made.
  size_t first_choice = 0;
};

// The purpose of a program. Every plan has `refresh`; the others depend on the engine.
enum class ProgramKind : int8_t {
  // Draws the parameters.
  init,
  // Computes parameters from masters.
  refresh,
  // A training step: forward[0] backward[0] ... update.
  step,
  // The update alone, for a delegate's step that runs call by call.
  update,
  // The forward part without dropout.
  eval,
  // Computes outputs[1] of the graph.
  infer,
  // Continues a text.
  decode,
  // Gathers one bucket of a delegate.
  gather,
  // Reduces one bucket of a delegate in one micro-step.
  reduce
};

// The key by which an engine finds a program of its plan. Only `step` has a form, only `gather` and
// `reduce` have a bucket, and only `reduce` has a micro-step.
struct ProgramKey {
  ProgramKind kind = ProgramKind::refresh;
  StepForm form = StepForm::reduced;
  BucketId bucket;
  MicroId micro;
  // The number of micro-steps of the step that `micro` belongs to.
  int64_t micros = 0;
  ProgramKey(ProgramKind k) : kind(k) {}
  ProgramKey(StepForm f) : kind(ProgramKind::step), form(f) {}
  ProgramKey(ProgramKind k, BucketId b) : kind(k), bucket(b) {}
  ProgramKey(BucketId b, const MicroOfStep& at)
      : kind(ProgramKind::reduce), bucket(b), micro(at.micro), micros(at.micros) {}
  auto operator<=>(const ProgramKey&) const = default;
};

// The graph that continues a text, and the buffers of its inputs and logits.
struct DecodePlaces {
  // The result of decode_graph(), in its final types.
  Graph graph;
  // The buffers of the inputs. None for a cache, which is a buffer of only the decode program and
  // is kept between runs.
  IdVector<InputId, BufferId> inputs;
  // The logits, [1, vocabulary], in the compute type.
  BufferId logits;
  int64_t positions = 0, position_offset = 0;
};

// The parameters of a delegate host, and the places of its leases and gradients in a step that runs
// call by call. Every bucket has a separate place, which is backed by pages only while it is
// leased.
struct HostPlaces {
  IdVector<ParamId, ParamSpec> params;
  // The shapes of the parameters, in the compute type.
  IdVector<ParamId, TensorType> types;
  // The buffers of whole parameters; if the bucket is not partitioned, the persistent copy.
  IdVector<BucketId, BufferId> lease;
  // The buffers of gradients. None for a bucket that was never trained.
  IdVector<BucketId, BufferId> grads;
};

// Everything an engine runs, compiled for one rank: a pure function of (graph or parameters,
// config, rank, mesh, machine). All programs have the same persistent buffers at the same places.
struct Plan {
  ZeroPlan zero;
  std::map<ProgramKey, Program> programs;
  // The arenas that the programs share. They have room for fragments, which are compiled when they
  // first run, but not for a recorded step.
  MemoryPlan memory;
  // The graph after precision, differentiation and elimination of common subexpressions. The graph
  // of a delegate has only parameters.
  Graph graph;
  // The forward part as `eval` runs it.
  Graph eval_graph;
  std::optional<DecodePlaces> decode;
  HostPlaces host;
  PlanPrograms asked;
  // The choices of the programs, and their position in choices_by_memory(). A recorded step makes a
  // separate choice.
  Choices choices;
  size_t choice = 0;
  // The plan hash, equal on all ranks.
  std::string hash;
  // Decisions of the compiler, for reports ("prefetch is off to fit memory_budget").
  std::vector<std::string> notes;

  bool has(ProgramKey key) const { return programs.contains(key); }
  // Throws DS_ERROR_INTERNAL for a program that the plan does not have.
  const Program& program(ProgramKey key) const;
  const Program& step(StepForm form = StepForm::reduced) const { return program(form); }
  // Returns the buffers of one of the programs. The persistent buffers come first and are the same
  // in every program. Throws DS_ERROR_INTERNAL before the plan is compiled.
  const IdVector<BufferId, Buffer>& buffers() const;
};

// Returns the text of a step in all its forms.
std::string print_steps(const Plan& plan);

}  // namespace ds
