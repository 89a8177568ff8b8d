// The step that a delegate host made, as one program.
#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "compile/delegate.h"
#include "compile/pipeline.h"
#include "core/base/dtype.h"
#include "core/base/error.h"
#include "core/base/ids.h"
#include "core/config/config.h"
#include "core/graph/graph.h"
#include "core/program/builder.h"
#include "core/program/granules.h"
#include "core/program/instruction.h"
#include "core/program/program.h"
#include "zero/insert.h"
#include "zero/policy.h"

namespace ds {
namespace {

// Emits the host's part of a step and closes a segment at every end of a micro-step. What the host does
// behind the last one has no gradients, and a segment of its own: nothing of the update runs with it.
class Recorder {
 public:
  Recorder(const DelegatePlan& plan, ProgramBuilder& builder, StepBuffers& buffers)
      : plan_(plan), builder_(builder), buffers_(buffers) {}

  void emit(const IdVector<EventId, HostEvent>& events) {
    start_micro(events.begin(), events.end());
    for (auto e = events.begin(); e != events.end(); ++e) {
      if (e->kind != HostEvent::Kind::end) {
        call(*e, EventId(e - events.begin()));
        continue;
      }
      zero_holes(true);
      builder_.end_segment(Phase::backward, micro_);
      ++micro_;
      if (micro_.number() < plan_.zero.accumulation) start_micro(e + 1, events.end());
    }
    if (events.back().kind != HostEvent::Kind::end) builder_.end_segment(Phase::leases);
  }

 private:
  using Event = IdVector<EventId, HostEvent>::const_iterator;

  static Op op_of(HostEvent::Kind kind) {
    if (kind == HostEvent::Kind::gather) return Op::lease;
    return kind == HostEvent::Kind::release ? Op::release : Op::grad;
  }

  void call(const HostEvent& e, EventId number) {
    bool grad = e.kind == HostEvent::Kind::grad;
    const IdVector<BucketId, BufferId>& from = grad ? buffers_.grads[micro_] : buffers_.full;
    std::vector<Operand> operands;
    for (ParamId p : e.params) {
      BucketId bucket = plan_.zero.layout.bucket_of[p];
      operands.push_back(param_operand(plan_.zero, builder_, from[bucket], p, plan_.types[p].shape,
                                       grad ? Access::write : Access::read));
    }
    MicroId last(plan_.zero.accumulation - 1);
    builder_.emit(op_of(e.kind), std::move(operands), {}, std::min(micro_, last)).event = number;
  }

  void start_micro(Event first, Event end) {
    add_grad_buffers(builder_, plan_.zero, buffers_);
    comes_.assign(plan_.types.size(), 0);
    for (; first != end && first->kind != HostEvent::Kind::end; ++first) {
      if (first->kind == HostEvent::Kind::grad) comes_[first->params[0]] = 1;
    }
    zero_holes(false);
  }

  // Padding and what does not come are zero. A bucket of which a trained parameter does not come gets its
  // zeros last, at the end of the micro-step, and is reduced behind them: the next time the host may give
  // that gradient after all.
  void zero_holes(bool last) {
    const IdVector<BucketId, BufferId>& grads = buffers_.grads[micro_];
    for (BucketId b : grads.ids()) {
      if (!grads[b].exists() || all_come(b) == last) continue;
      ds::zero_holes(builder_, plan_.zero, b, grads[b], micro_, [&](ParamId p) { return comes_[p] != 0; });
    }
  }

  bool all_come(BucketId bucket) const {
    const std::vector<ParamPlace>& params = plan_.zero.layout.buckets[bucket].params;
    return std::all_of(params.begin(), params.end(), [&](const ParamPlace& place) {
      return comes_[place.param] || plan_.zero.frozen[place.param];
    });
  }

  const DelegatePlan& plan_;
  ProgramBuilder& builder_;
  StepBuffers& buffers_;
  IdVector<ParamId, char> comes_;  // its gradient, in this micro-step
  MicroId micro_{0};
};

void find_event_ends(RecordedStep& step) {
  const Program& program = step.program;
  step.event_end.assign(step.events.size(), InstrId(0));
  for (InstrId i : program.instrs.ids()) {
    EventId event = program.instrs[i].event;
    if (event.exists()) step.event_end[event] = i + 1;
  }
  InstrId reached(0);  // the end of a micro-step runs what belongs to it
  SegmentId micro(0);
  for (EventId e : step.events.ids()) {
    if (step.events[e].kind == HostEvent::Kind::end)
      step.event_end[e] = std::max(reached, program.segments[micro++].end);
    reached = step.event_end[e];
  }
}

// A reduction begins where it reads the gradients, and ends with its last write of what it leaves behind: the
// bucket's sums and their norms.
class ReductionFinder {
 public:
  ReductionFinder(RecordedStep& step, const ZeroPlan& plan)
      : step_(step),
        plan_(plan),
        begun_at_(step.grads.size(),
                  IdVector<BucketId, InstrId>(plan.buckets.size(), step.program.instrs.past())),
        sums_of_(step.program.buffers.size()),
        grads_of_(step.program.buffers.size()) {
    step.reduced_at.assign(step.grads.size(), IdVector<BucketId, InstrId>(plan.buckets.size()));
    for (BucketId b : plan.buckets.ids()) {
      for (BufferId sum : plan.buckets[b].grad) sums_of_[sum] = b;
      for (MicroId m : step.grads.ids()) {
        if (step.grads[m][b].exists()) grads_of_[step.grads[m][b]] = {m, b};
      }
    }
  }

  void run() {
    for (InstrId i : step_.program.instrs.ids()) {
      for (const Operand& o : step_.program.instrs[i].operands) note(i, o);
    }
    check();
  }

 private:
  void note(InstrId i, const Operand& o) {
    if (o.access == Access::read) {
      auto [m, b] = grads_of_[o.buffer];
      if (b.exists()) begun_at_[m][b] = std::min(begun_at_[m][b], i);
      return;
    }
    BucketId bucket = o.buffer == plan_.norms ? bucket_of_norm(o.begin) : sums_of_[o.buffer];
    if (!bucket.exists()) return;
    step_.reduced_at[step_.program.instrs[i].micro][bucket] = i + 1;
  }

  BucketId bucket_of_norm(int64_t begin) const {
    for (BucketId b : plan_.buckets.ids()) {
      bool here = plan_.buckets[b].norm_first * size_of(DS_DTYPE_F64) == begin;
      if (plan_.trains(b) && here) return b;
    }
    return none;
  }

  // The host may leave the step behind each of its calls.
  void check() const {
    std::vector<InstrId> ends = step_.event_end;
    IdVector<MicroId, InstrId> micro_end;
    std::sort(ends.begin(), ends.end());
    for (EventId e : step_.events.ids()) {
      if (step_.events[e].kind == HostEvent::Kind::end) micro_end.push_back(step_.event_end[e]);
    }
    for (MicroId m : step_.grads.ids()) {
      for (BucketId b : plan_.buckets.ids()) {
        InstrId reduced = step_.reduced_at[m][b];
        if (!step_.grads[m][b].exists()) continue;
        auto within = std::upper_bound(ends.begin(), ends.end(), begun_at_[m][b]);
        bool whole = reduced > begun_at_[m][b] && (within == ends.end() || *within >= reduced);
        ensure(whole && reduced <= micro_end[m],
               "the reduction of {} in micro-step {}, instructions {} to {}, is cut by a host call",
               plan_.layout.buckets[b].name, m, begun_at_[m][b], reduced);
      }
    }
  }

  RecordedStep& step_;
  const ZeroPlan& plan_;
  IdVector<MicroId, IdVector<BucketId, InstrId>> begun_at_;
  IdVector<BufferId, BucketId> sums_of_;                       // the bucket whose sums it has
  IdVector<BufferId, std::pair<MicroId, BucketId>> grads_of_;  // micro-step and bucket
};

}  // namespace

std::optional<RecordedStep> compile_recorded(const DelegatePlan& plan, const Config& config,
                                             const Machine& machine, IdVector<EventId, HostEvent> events,
                                             std::span<const int64_t, 3> beside) {
  RecordedStep step;
  step.events = std::move(events);
  for (bool prefetch : {config.zero.overlap_comm, false}) {
    StepBuffers buffers;
    ProgramBuilder builder = begin_program(plan.zero, "step", 1, buffers);
    Recorder(plan, builder, buffers).emit(step.events);
    emit_update(builder, plan.zero, config);
    step.program = builder.take();
    finish_program(step.program, plan.zero, config, buffers, machine,
                   {.prefetch = prefetch, .verify_passes = true, .may_end_early = true});
    MemoryPlan memory;
    for (size_t t = 0; t < 3; ++t) {
      memory.tiers[t] = step.program.arenas[t];
      memory.tiers[t].transient += beside[t];
    }
    if (!fits(memory, config.memory_budget)) continue;
    step.grads = std::move(buffers.grads);
    find_event_ends(step);
    ReductionFinder(step, plan.zero).run();
    return step;
  }
  return std::nullopt;
}

}  // namespace ds
