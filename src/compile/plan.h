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
#include "core/base/hash.h"
#include "core/base/shape.h"
#include "core/config/config.h"
#include "core/graph/graph.h"
#include "core/program/choices.h"
#include "core/program/program.h"
#include "optim/optimizer.h"
#include "zero/reduce.h"
#include "zero/zero_plan.h"

namespace ds {

// A request for a program that continues text token by token (docs/adr/0009).
struct DecodeRequest {
  // The number of tokens of the longest text, or 0 if no such program is requested.
  int64_t positions = 0;
  // The number that is added to positions for the model's input `positions`
  // (HfModel::position_offset).
  int64_t position_offset = 0;
  // The largest number of prompt tokens that are processed at once.
  int64_t chunk = 64;
  // As in DecodeOptions.
  bool by_length = false;
};

// A request for a plan: programs in addition to training and evaluation, and options of the
// compiler.
struct PlanPrograms {
  // Whether to compile the program of inference, if the graph has a second output.
  bool infer = true;
  DecodeRequest decode;
  // A step with at most this many micro-steps is written out whole. In a longer step, if possible,
  // only some micro-steps are written out, and some of these are repeated.
  int64_t written_out = 16;
  // The order of a step, whose micro-steps are then all written out. If empty,
  // accumulate_in_turn().
  std::vector<Action> schedule;
  // Whether matrices are cut only between rows, so that each row is a granule.
  bool row_granules = false;
  // The value that evaluation computes, a scalar like the loss. If the id does not exist,
  // evaluation computes output 0.
  ValueId evaluated;
  // Whether to refuse a plan that exceeds memory_budget. If false, such a plan is compiled with the
  // choice that needs the least memory, so that it can be reported.
  bool within_budget = true;
  // The position in choices_by_memory() of the first choice that is tried. If ranks choose
  // differently, all ranks compile again from the last position that any rank has chosen.
  size_t first_choice = 0;
};

// The purpose of a program. Every plan has `refresh`; its other programs depend on the engine.
enum class ProgramKind : int8_t {
  // Draws the parameters.
  init,
  // Computes parameters from masters.
  refresh,
  // A training step: forward[0] backward[0] ... update.
  step,
  // Only the update, for a delegate's step that runs call by call.
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
// `reduce` have a bucket, only `reduce` has a micro-step, and only `eval` and `infer` an adapter.
struct ProgramKey {
  ProgramKind kind = ProgramKind::refresh;
  StepForm form = StepForm::reduced;
  BucketId bucket;
  MicroId micro;
  // The number of micro-steps of the step that `micro` belongs to.
  int64_t micros = 0;
  // The number of the adapter that `eval` and `infer` run with (nn/adapter_keys.h).
  int adapter = 0;
  ProgramKey(ProgramKind k) : kind(k) {}
  ProgramKey(ProgramKind k, int number) : kind(k), adapter(number) {}
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
  // The buffers of the inputs. The id does not exist for a cache, whose buffer belongs to the
  // decode program and is kept between runs.
  IdVector<InputId, BufferId> inputs;
  // The buffer of the logits, [1, vocabulary].
  BufferId logits;
  int64_t positions = 0, position_offset = 0;
};

// The parameters of a delegate host, and the buffers of its leases and gradients in a step that
// runs call by call. Every bucket has separate buffers, for which pages are allocated only while
// they are leased.
struct HostPlaces {
  IdVector<ParamId, ParamSpec> params;
  // The compute type and the shape of each parameter.
  IdVector<ParamId, TensorType> types;
  // The buffers of whole parameters. For a bucket that is not partitioned, this is the persistent
  // copy.
  IdVector<BucketId, BufferId> lease;
  // The buffers of gradients. The id does not exist for a bucket that was never trained.
  IdVector<BucketId, BufferId> grads;
  // The buffers of gradients in the first micro-step: the accumulator of a bucket if
  // takes_first_gradients() returns true, else the buffer in `grads`.
  IdVector<BucketId, BufferId> first_grads;
};

// Everything that an engine runs, compiled for one rank: a pure function of the graph or
// parameters, the configuration, the rank, the mesh and the machine. All programs have the same
// persistent buffers at the same offsets.
struct Plan {
  ZeroPlan zero;
  std::map<ProgramKey, Program> programs;
  // The sizes of the arenas that the programs share. They include fragments, which are compiled
  // when they first run, but not a recorded step.
  MemoryPlan memory;
  // The graph after precision, differentiation, elimination of common subexpressions and the chosen
  // recomputation. The graph of a delegate has only parameters.
  Graph graph;
  // The forward part as `eval` runs it.
  Graph eval_graph;
  // The forward parts as `eval` and `infer` run them with another choice than the own adapter, by
  // the number of the choice.
  struct Evaluated {
    Graph eval, infer;
  };
  std::map<int, Evaluated> other_adapters;
  // Returns the graph that `eval` or `infer` runs.
  const Graph& evaluated(const ProgramKey& key) const;
  std::optional<DecodePlaces> decode;
  HostPlaces host;
  PlanPrograms asked;
  // The choices of the programs, and their position in choices_by_memory(). A recorded step has its
  // own choices.
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

// Adds the configuration and the choices of a plan to `hash`. The hashes of all kinds of plans
// contain them.
void hash_settings(const Plan& plan, const Config& config, Hash128& hash);

// Returns the text of a step in all its forms.
std::string print_steps(const Plan& plan);

}  // namespace ds
