#include "compile/finish_program.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <vector>

#include "compile/simulate.h"
#include "core/base/dtype.h"
#include "offload/tiers.h"
#include "optim/optimizer.h"
#include "passes/hoist.h"
#include "passes/offsets.h"
#include "passes/repeat.h"
#include "passes/sync.h"
#include "update/stretch.h"
#include "zero/ranges.h"
#include "zero/reduce.h"

namespace ds {

// The order of gathers may recur only after two or three micro-steps. Then a stretch of that many
// micro-steps is repeated. A shorter stretch is cheaper to compile and tried first.
std::vector<WrittenOut> ways_to_write(int64_t accumulation, int64_t written_out) {
  // The number of micro-steps written out besides the stretch and its first repetition: the first
  // two, in which the order of gathers settles, and the last two.
  constexpr int64_t kAround = 4;
  std::vector<WrittenOut> ways;
  for (int32_t repeated : {1, 2, 3}) {
    int64_t few = kAround + 2 * repeated;
    // The micro-steps that are not written out must fill whole rounds.
    few += (accumulation - few) % repeated;
    if (accumulation <= std::max(written_out, few)) break;
    ways.push_back({few, repeated});
  }
  ways.push_back({accumulation, 1});
  return ways;
}

bool finish_program(Program& program, const ZeroPlan& plan, const Config& config,
                    const StepBuffers& buffers, const Machine& machine,
                    const FinishOptions& options) {
  insert_gathers(program, plan, config.zero, buffers);
  if (!buffers.grads.empty()) insert_reductions(program, plan, options.choices.prefetch, buffers);
  // A sub-group of one f32 state is the unit of host memory for states on files.
  int64_t unit = update_group(config.zero) * size_of(DS_DTYPE_F32);
  int64_t resident = config.zero.buffer_count * unit;
  insert_tier_moves(program, {.emulate = config.separate_tiers(),
                              .file_alignment = machine.file_alignment,
                              .resident_bytes = options.choices.prefetch ? resident : 0,
                              .save_every_write = options.may_end_early});
  // A slot of the ring holds a sub-group's master and states.
  auto states = static_cast<int64_t>(1 + optimizer_of(config.optimizer).state_names().size());
  HoistOptions limits;
  limits.prefetch_elements = config.zero.prefetch_bucket_size;
  limits.max_live_elements = config.zero.max_live_parameters;
  limits.load_bytes = config.zero.buffer_count * states * unit;
  // Gathers and transfers are moved before the repeated stretch is chosen, so that they may cross
  // borders of micro-steps.
  if (options.choices.prefetch) hoist(program, limits);
  int64_t missing = buffers.grads.empty() ? 0 : plan.accumulation - std::ssize(buffers.grads);
  if (!repeat_micros(program, static_cast<int32_t>(missing), options.repeated)) return false;
  number_collectives(program);
  mark_last_uses(program);
  if (options.verify_passes) verify(program, {.physical = false});
  assign_offsets(program, {machine.alignment, machine.file_alignment,
                           options.choices.late_reuse && program.separate});
  insert_waits(program);
  if (options.verify_passes) verify(program, {.physical = true});
  // All ranks issue the same collectives, which a comparison of plan hashes confirms at run time.
  // So this program represents the programs of all ranks.
  simulate(std::vector<const Program*>(static_cast<size_t>(plan.mesh.ranks()), &program));
  return true;
}

}  // namespace ds
