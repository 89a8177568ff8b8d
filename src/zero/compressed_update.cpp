// Problem. Behind freeze_step 1-bit Adam no longer adds up gradients over ranks: every rank moves the
// momentum by its own mean gradient, and the momenta are averaged at one bit an element. What a sign loses
// must not be lost for good, and all ranks must have the same momentum afterwards, to the bit.
//
// Invariant. When a step begins, every rank has the same whole momentum. What a rank sends of a tensor, and
// what its errors hold, depends on that tensor and on the number of ranks alone: not on buckets, on the
// partition of the states or on who updates what. Thus stages 0 and 1 have the same bits.
//
// Algorithm, W ranks, for each bucket and in it for each tensor (core/program/signs.h):
//  1. `momentum`: m = b1 m + (1 - b1) g, with g the mean gradient of this rank's leaves.
//  2. `add_error`, `pack_signs`: the worker's error takes up m; its signs and one scale, the root of the mean
//     square, go into a block for each rank; what they do not say stays as error.
//  3. `all_to_all`: rank r gets chunk r of all ranks.
//  4. `mean_signs`, `pack_signs`: the mean of what they say and the server's error are packed in the same
//  way.
//  5. `all_gather`, `unpack_signs`: every rank gets all chunks, and these are the new momentum.
//  6. `frozen_adam`: the update of this rank's part, with the variance as it was when it froze.
// Steps 1 to 3 are emitted for all buckets before the first step 4, and steps 4 and 5 before the first
// update, so that kernels of one bucket run while another is on its way. One rank has nobody to tell: there
// only 1 and 6 are left.
//
// Cost. A rank receives 2 (W - 1) / W bits an element and 8 bytes a tensor and rank, in place of the 6 bytes
// (W - 1) / W of an all_reduce of bf16 to f32. Errors take 4 bytes an element for the worker and 4 / W for
// the server, the momentum 4 bytes on every rank at stage 1, too.
//
// Source. Tang et al., "1-bit Adam" (arXiv:2102.02888); DeepSpeed 0.19.6, runtime/fp16/onebit/adam.py and
// runtime/comm/compressed.py, whose numbers tests/training/onebit_test.cpp replays. docs/adr/0039.
#include "zero/compressed_update.h"

#include <fmt/core.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/program/element_run.h"
#include "core/program/signs.h"
#include "zero/gather.h"
#include "zero/loss_and_norm.h"
#include "zero/step_buffers.h"
#include "zero/stretch.h"
#include "zero/update.h"

namespace ds {
namespace {

class CompressedUpdate {
 public:
  CompressedUpdate(ProgramBuilder& builder, const ZeroPlan& plan, const Config& config)
      : builder_(builder), plan_(plan), config_(config) {}

  void emit() {
    std::vector<Exchange> exchanges;
    for (BucketId b = plan_.buckets.last(); b.exists(); --b) {
      if (!plan_.trains(b)) continue;
      emit_momentum(b);
      if (plan_.buckets[b].worker_error.exists()) exchanges.push_back(send(b));
    }
    for (Exchange& e : exchanges) answer(e);
    for (const Exchange& e : exchanges) {
      push(Op::unpack_signs, e, read(e.blocks), whole_momentum(e.bucket), {{"ranks", e.ranks}});
    }
    for (BucketId b = plan_.buckets.last(); b.exists(); --b) {
      if (plan_.trains(b)) emit_update(b);
    }
  }

 private:
  // A bucket on its way.
  struct Exchange {
    BucketId bucket;
    int64_t ranks = 1;
    std::vector<ElementRun> tensors;
    StateRef blocks;  // one of each rank
  };

  const BucketState& state(BucketId b) const { return plan_.buckets[b]; }
  const std::string& name(BucketId b) const { return plan_.layout.buckets[b].name; }

  void emit_momentum(BucketId b) {
    int64_t numel = plan_.layout.buckets[b].numel;
    StateRef grad{state(b).sum(), 0, numel}, momentum{state(b).states[0].buffer, 0, numel};
    for (const Stretch& s : stretches_of(plan_, config_, b, 0, numel)) {
      s.limit(builder_.emit(Op::momentum,
                            {flat_operand(builder_, grad.slice(s.first, s.count), Access::read), scalars(),
                             flat_operand(builder_, momentum.slice(s.first, s.count), Access::update)},
                            {{"ranks", int64_t{plan_.mesh.data_size()}}}));
    }
  }

  // The signs of this rank's momentum go to all ranks.
  Exchange send(BucketId b) {
    Exchange e{b, plan_.levels(b).ranks(), places_of(plan_.trained_params(b)), {}};
    SignSizes sizes = sign_sizes(e.tensors, e.ranks, e.ranks);
    StateRef codes = transient(name(b) + ".signs", DS_DTYPE_U8, e.ranks * sizes.block);
    e.blocks = transient(name(b) + ".their_signs", DS_DTYPE_U8, e.ranks * sizes.block);
    StateRef sums = transient(name(b) + ".squares", DS_DTYPE_F64, sizes.sums);
    StateRef error{state(b).worker_error, 0, e.ranks * sizes.chunks};
    push(Op::add_error, e, read(whole(b)), update(error), write(sums), {{"ranks", e.ranks}});
    push(Op::pack_signs, e, read(sums), update(error), write(codes), {{"ranks", e.ranks}, {"ways", e.ranks}});
    collect(Op::all_to_all, e, codes, e.blocks);
    return e;
  }

  // What this rank makes of its chunk of all of them goes back.
  void answer(Exchange& e) {
    BucketId b = e.bucket;
    SignSizes sizes = sign_sizes(e.tensors, e.ranks, 1);
    StateRef codes = transient(name(b) + ".mean_signs", DS_DTYPE_U8, sizes.block);
    StateRef all = transient(name(b) + ".all_signs", DS_DTYPE_U8, e.ranks * sizes.block);
    StateRef sums = transient(name(b) + ".mean_squares", DS_DTYPE_F64, sizes.sums);
    StateRef error{state(b).server_error, 0, sizes.chunks};
    push(Op::mean_signs, e, read(e.blocks), update(error), write(sums), {{"ranks", e.ranks}});
    push(Op::pack_signs, e, read(sums), update(error), write(codes),
         {{"ranks", e.ranks}, {"ways", int64_t{1}}});
    collect(Op::all_gather, e, codes, all);
    e.blocks = all;
  }

  void emit_update(BucketId b) {
    const BucketState& held = state(b);
    for (const Stretch& s : stretches_of(plan_, config_, b, plan_.part_first(b), plan_.part_numel(b))) {
      auto part = [&](const StateRef& of, Access access) {
        return flat_operand(builder_, of.slice(s.first, s.count), access);
      };
      s.limit(builder_.emit(
          Op::frozen_adam, {part(held.states[0], Access::read), part(held.states[1], Access::read), scalars(),
                            part(held.master, Access::update), part(held.param, s.written())}));
    }
  }

  StateRef whole(BucketId b) const { return {state(b).states[0].buffer, 0, plan_.layout.buckets[b].numel}; }
  Operand whole_momentum(BucketId b) const { return update(whole(b)); }
  Operand read(const StateRef& of) const { return flat_operand(builder_, of, Access::read); }
  Operand write(const StateRef& of) const { return flat_operand(builder_, of, Access::write); }
  Operand update(const StateRef& of) const { return flat_operand(builder_, of, Access::update); }
  Operand scalars() const { return read(all_of(builder_, plan_.scalars)); }

  StateRef transient(const std::string& name, DType dtype, int64_t numel) {
    return {builder_.transient(name, dtype, numel, Tier::device), 0, numel};
  }

  void push(Op op, const Exchange& e, Operand from, Operand to, Attrs attrs) {
    builder_.emit(op, {std::move(from), scalars(), std::move(to)}, std::move(attrs)).runs = e.tensors;
  }
  void push(Op op, const Exchange& e, Operand from, Operand error, Operand to, Attrs attrs) {
    builder_.emit(op, {std::move(from), scalars(), std::move(error), std::move(to)}, std::move(attrs)).runs =
        e.tensors;
  }
  void collect(Op op, const Exchange& e, const StateRef& from, const StateRef& to) {
    builder_.emit(op, {read(from), write(to)}).group = {plan_.levels(e.bucket).ranks(),
                                                        plan_.levels(e.bucket).stride()};
  }

  ProgramBuilder& builder_;
  const ZeroPlan& plan_;
  const Config& config_;
};

}  // namespace

void emit_compressed_update(ProgramBuilder& builder, const ZeroPlan& plan, const Config& config,
                            BufferId own_norms) {
  emit_clip_of_own(builder, plan, config, own_norms);
  CompressedUpdate(builder, plan, config).emit();
  for (BucketId b : plan.buckets.ids()) {
    if (plan.trains(b)) emit_param_gather(builder, plan, b);
  }
  builder.end_segment(Phase::update);
}

std::string compression_note(const ZeroPlan& plan, const Config& config) {
  const std::string behind =
      fmt::format("{}: behind update {}", config.optimizer.type, config.optimizer.freeze_step);
  int64_t signs = 0, errors = 0, momentum = 0;
  for (BucketId b : plan.buckets.ids()) {
    const BucketState& s = plan.buckets[b];
    if (!plan.trains(b)) continue;
    momentum += plan.buffers[s.states[0].buffer].bytes();
    if (!s.worker_error.exists()) continue;
    int64_t ranks = plan.levels(b).ranks();
    signs += 2 * (ranks - 1) * sign_sizes(places_of(plan.trained_params(b)), ranks, 1).block;
    errors += plan.buffers[s.worker_error].bytes() + plan.buffers[s.server_error].bytes();
  }
  if (signs == 0) return behind + " the variance stands; one rank has nothing to compress";
  return fmt::format(
      "{} a rank receives {} bytes of signs a step in place of gradients; it keeps {} bytes of whole "
      "momentum "
      "and {} of errors",
      behind, signs, momentum, errors);
}

}  // namespace ds
