// Problem. After freeze_step 1-bit Adam no longer adds up gradients over ranks: every rank updates
// the momentum with its own mean gradient, and the momenta are averaged at one bit per element. The
// error of a sign must not be lost for good, and all ranks must have the same momentum afterwards,
// to the bit.
//
// Invariant. When a step begins, every rank has the same whole momentum. The codes that a rank
// sends of a tensor, and the errors that it keeps, depend only on that tensor and on the number of
// ranks. They do not depend on buckets, on the partition of the states or on which rank updates an
// element. Thus stages 0 and 1 compute the same bits.
//
// Algorithm, W ranks, for each bucket and in it for each tensor (core/program/signs.h):
//  1. `momentum`: m = b1 m + (1 - b1) g, with g the mean gradient of this rank's leaves.
//  2. The mean of all ranks' momenta, as signs (update/onebit/signs.h), is the new momentum.
//  3. `frozen_adam`: the update of this rank's part, with the variance as it was when it froze.
// The signs of all buckets are sent before the first answer, and all are received before the first
// update, so that kernels of one bucket run while another is on its way. A single rank executes
// only steps 1 and 3.
//
// Cost. After the freeze, ranks exchange about a sixteenth of the bytes of bf16 gradients. Errors
// take 4 bytes per element for the worker and 4 / W for the server. The momentum takes 4 bytes per
// element on every rank, even at stage 1.
//
// Source. Tang et al., "1-bit Adam" (arXiv:2102.02888); DeepSpeed 0.19.6,
// runtime/fp16/onebit/adam.py, whose numbers tests/training/onebit_recorded_test.cpp replays.
// docs/adr/0039. 0/1 Adam: update/onebit/local.cpp. 1-bit LAMB: update/onebit/lamb.cpp.
#include "update/onebit/adam.h"

#include <fmt/core.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/element_run.h"
#include "core/program/levels.h"
#include "core/program/signs.h"
#include "optim/optimizer.h"
#include "update/loss_and_norm.h"
#include "update/onebit/lamb.h"
#include "update/onebit/local.h"
#include "update/onebit/parts.h"
#include "update/onebit/signs.h"
#include "update/stretch.h"
#include "update/update.h"
#include "zero/gather.h"
#include "zero/step_buffers.h"

namespace ds {

namespace {

void emit_momenta(ProgramBuilder& builder, const ZeroPlan& plan, const Config& config) {
  struct OnItsWay {
    SignExchange exchange;
    StateRef momentum;
  };
  std::vector<OnItsWay> all;
  for_trained_buckets(plan, [&](BucketId b) {
    emit_own_momentum(builder, plan, config, b);
    if (auto exchange = exchange_of(builder, plan, b)) {
      all.push_back(
          {*exchange, {plan.buckets[b].state(0).buffer, 0, plan.layout.buckets[b].numel}});
      all.back().exchange.send(all.back().momentum);
    }
  });
  for (OnItsWay& one : all) one.exchange.answer();
  for (OnItsWay& one : all) one.exchange.receive(one.momentum);
  for_trained_buckets(plan, [&](BucketId b) { emit_frozen_adam(builder, plan, config, b); });
}

}  // namespace

void emit_compressed_update(ProgramBuilder& builder, const ZeroPlan& plan, const Config& config,
                            StepForm form, BufferId own_norms) {
  emit_clip_of_own(builder, plan, config, own_norms);
  switch (optimizer_of(config.optimizer).compression->of) {
    case Compression::Of::momentum:
      emit_momenta(builder, plan, config);
      break;
    case Compression::Of::momenta:
      emit_compressed_lamb(builder, plan, config, form);
      break;
    case Compression::Of::steps:
      emit_local_update(builder, plan, config, form);
      break;
  }
  for (BucketId b : plan.buckets.ids()) {
    if (plan.trains(b)) emit_param_gather(builder, plan, b);
  }
  builder.end_segment(Phase::update);
}

std::string compression_note(const ZeroPlan& plan, const OptimizerConfig& config) {
  const Optimizer& optimizer = optimizer_of(config);
  const std::string after =
      fmt::format("{}: after update {}", config.type,
                  optimizer.steps_locally() ? config.var_freeze_step : config.freeze_step);
  int64_t signs = 0, errors = 0, whole = 0;
  auto add = [&](const RankLevels& levels, const std::vector<ElementRun>& tensors, BufferId worker,
                 BufferId server) {
    if (!worker.exists()) return;
    signs += 2 * (levels.ranks() - 1) * sign_sizes(tensors, levels.ranks(), 1).block;
    errors += plan.memory.buffers[worker].bytes() + plan.memory.buffers[server].bytes();
  };
  for (BucketId b : plan.buckets.ids()) {
    const BucketState& s = plan.buckets[b];
    if (!plan.trains(b)) continue;
    whole +=
        plan.memory.buffers[optimizer.steps_locally() ? s.buffer_of(kOwnSteps) : s.state(0).buffer]
            .bytes();
    add(plan.levels(b), places_of(plan.trained_params(b)), s.buffer_of(kWorkerError),
        s.buffer_of(kServerError));
  }
  add(plan.classes.front().levels, {joined_momenta(plan)}, plan.joint_buffer(kWorkerError),
      plan.joint_buffer(kServerError));
  if (signs == 0) return after + " the variance is frozen; one rank has nothing to compress";
  return fmt::format(
      "{} a rank receives {} bytes of signs {} in place of gradients; it keeps {} bytes of {} and "
      "{} of errors",
      after, signs, optimizer.steps_locally() ? "a synchronisation" : "a step", whole,
      optimizer.steps_locally() ? "own steps" : "whole momentum", errors);
}

}  // namespace ds
