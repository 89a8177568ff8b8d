// Problem. Most bytes that ranks send are gradients. As int8 codes they take a quarter of the bytes
// of f32, and the largest elements of each tensor alone take far less. Later steps must make up for
// the error, and all ranks must have the same mean.
//
// Invariant. The codes that a rank sends, and the errors that it keeps, depend for each element
// only on the values of its granule (int8) or tensor (top_k) and on the ranks, not on buckets,
// stages or tiers.
//
// Algorithm. Gradients of a step's micro-steps stay on their rank. After the last one, norms and
// clip are computed from each rank's own gradients (as in docs/adr/0039). Then, for each bucket:
//  1. `own_gradient`: this rank's share of the mean: its sum, clipped, divided by all leaves.
//  2. top_k: `pack_top` takes the largest elements of share + error; `all_gather`; `sum_top`.
//     int8: `quantize` share + error; `all_to_all`; `dequantize_sum` computes this rank's share of
//     the elements of the mean; `quantize` that + error; `all_gather`; `dequantize`.
//  3. `mean_gradients`: from here on updates use gradients as they are, without a scale.
// The shares of all buckets are sent before the first sum, so that kernels of one bucket run while
// the share of another is on its way.
// Stage 1 computes the whole mean, too, so that it has the same bits as stage 0.
//
// Cost. On W ranks, a rank receives 2 (W - 1) / W * 260 / 256 bytes for each element with int8, and
// 8 (W - 1) bytes times the ratio with top_k. Errors take 4 bytes per element, and with int8 4 / W
// bytes more; the mean takes 4 bytes per element during the update.
//
// Sources. Error feedback: Karimireddy et al. (arXiv:1901.09847). Largest elements: Lin et al.
// (arXiv:1712.01887). docs/adr/0034.
#include "update/onebit/gradients.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/base/element_run.h"
#include "core/program/codes.h"
#include "core/program/top.h"
#include "update/loss_and_norm.h"
#include "update/onebit/parts.h"
#include "zero/step_buffers.h"

namespace ds {
namespace {

// Emits the exchange of the gradients of all trained buckets.
class CompressedGradients {
 public:
  CompressedGradients(ProgramBuilder& builder, const ZeroPlan& plan)
      : builder_(builder), plan_(plan) {}

  IdVector<BucketId, StateRef> run() {
    const bool int8 = plan_.compression.type == "int8";
    IdVector<BucketId, StateRef> means, sent;
    means.resize(plan_.buckets.size());
    sent.resize(plan_.buckets.size());
    for_trained_buckets(plan_, [&](BucketId b) { sent[b] = int8 ? send_codes(b) : send_top(b); });
    if (int8) for_trained_buckets(plan_, [&](BucketId b) { sent[b] = answer_codes(b, sent[b]); });
    for_trained_buckets(plan_, [&](BucketId b) {
      means[b] = transient(b, ".mean_gradient", DS_DTYPE_F32, numel(b));
      if (int8) {
        emit(Op::dequantize, {read(sent[b]), write(means[b])}, {{"bits", kBits}});
      } else {
        emit(Op::sum_top, {read(sent[b]), write(means[b])}, {{"ranks", ranks(b)}});
      }
    });
    emit(Op::mean_gradients, {scalars_operand(builder_, plan_, Access::update)}, {});
    return means;
  }

 private:
  static constexpr int64_t kBits = 8;

  int64_t numel(BucketId b) const { return plan_.layout.buckets[b].numel; }
  int64_t ranks(BucketId b) const { return plan_.levels(b).ranks(); }
  Operand read(const StateRef& of) const { return flat_operand(builder_, of, Access::read); }
  Operand write(const StateRef& of) const { return flat_operand(builder_, of, Access::write); }
  Operand update(const StateRef& of) const { return flat_operand(builder_, of, Access::update); }
  Instr& emit(Op op, std::vector<Operand> operands, Attrs attrs) {
    return builder_.emit(op, std::move(operands), std::move(attrs));
  }
  StateRef transient(BucketId b, const char* name, DType dtype, int64_t count) {
    return {builder_.transient(plan_.layout.buckets[b].name + name, dtype, count, Tier::device), 0,
            count};
  }

  StateRef share(BucketId b) {
    StateRef own = transient(b, ".own_gradient", DS_DTYPE_F32, numel(b));
    emit(Op::own_gradient,
         {read(all_of(builder_, plan_.buckets[b].sum())), scalars_operand(builder_, plan_),
          write(own)},
         {{"ranks", int64_t{1}}});
    return own;
  }

  StateRef collect(Op op, BucketId b, const char* name, const StateRef& from, int64_t bytes) {
    StateRef to = transient(b, name, DS_DTYPE_U8, bytes);
    emit(op, {read(from), write(to)}, {}).group = {plan_.levels(b).ranks(),
                                                   plan_.levels(b).stride()};
    return to;
  }

  StateRef quantize(BucketId b, const char* name, const StateRef& from, BufferId error) {
    StateRef codes = transient(b, name, DS_DTYPE_U8, code_bytes(from.numel, kBits));
    emit(Op::quantize, {read(from), update(all_of(builder_, error)), write(codes)},
         {{"bits", kBits}, {"err_beta", 0.0}});
    return codes;
  }

  StateRef send_codes(BucketId b) {
    StateRef codes = quantize(b, ".codes", share(b), plan_.buckets[b].buffer_of(kSentError));
    return collect(Op::all_to_all, b, ".their_codes", codes, codes.numel);
  }

  StateRef answer_codes(BucketId b, const StateRef& theirs) {
    StateRef part = transient(b, ".mean_part", DS_DTYPE_F32, numel(b) / ranks(b));
    emit(Op::dequantize_sum, {read(theirs), write(part)}, {{"bits", kBits}, {"ranks", ranks(b)}});
    StateRef codes = quantize(b, ".mean_codes", part, plan_.buckets[b].buffer_of(kAnswerError));
    return collect(Op::all_gather, b, ".all_codes", codes, ranks(b) * codes.numel);
  }

  StateRef send_top(BucketId b) {
    const std::vector<ElementRun> tensors = places_of(plan_.trained_params(b));
    const double ratio = plan_.compression.ratio;
    StateRef block = transient(b, ".top", DS_DTYPE_U8, kTopBytes * top_count(tensors, ratio));
    emit(Op::pack_top,
         {read(share(b)), scalars_operand(builder_, plan_),
          update(all_of(builder_, plan_.buckets[b].buffer_of(kSentError))), write(block)},
         {{"ratio", ratio}})
        .runs = tensors;
    return collect(Op::all_gather, b, ".all_top", block, ranks(b) * block.numel);
  }

  ProgramBuilder& builder_;
  const ZeroPlan& plan_;
};

}  // namespace

IdVector<BucketId, StateRef> emit_compressed_gradients(ProgramBuilder& builder,
                                                       const ZeroPlan& plan, const Config& config,
                                                       BufferId own_norms) {
  emit_clip_of_own(builder, plan, config, own_norms);
  return CompressedGradients(builder, plan).run();
}

}  // namespace ds
