// The step that a delegate host made, as one program (delegate.cpp has the whole).
//
// A call becomes an instruction: `lease` reads whole parameters, `grad` writes one parameter's
// place in the micro-step's gradient bucket, `release` reads what its lease read, so that the
// memory lasts until then. What the host does not write, padding and gradients that do not come, is
// zeroed by instructions of its own. The passes do the rest. Afterwards two questions must have an
// answer at run time: up to which instruction does a call run (place_events), and what has been
// reduced when the host leaves the order (ReductionFinder)?
//
// In a long step all micro-steps but the first and the last usually have the same calls. Then the
// program has a few of them, of which passes/repeat.cpp repeats one: a call of round r has the
// number of the same call in round 0 plus r times the calls of a round, and the same instruction
// one round further on. A host whose calls differ between micro-steps has its step written out.
#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "compile/delegate.h"
#include "compile/finish_program.h"
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
#include "zero/policy.h"
#include "zero/step_buffers.h"
#include "zero/update.h"

namespace ds {
namespace {

using Events = IdVector<EventId, HostEvent>;

// The calls of each micro-step; what the host does behind the last one belongs to none.
class MicroCalls {
 public:
  explicit MicroCalls(const Events& events) : events_(events) {
    begins_.emplace_back(0);
    for (EventId e : events.ids()) {
      if (events[e].kind == HostEvent::Kind::end) begins_.push_back(e + 1);
    }
  }

  // Whether each micro-step but the first and the last has the calls of the one `period`
  // micro-steps later.
  bool repeat_after(int32_t period) const {
    int32_t micros = static_cast<int32_t>(begins_.size()) - 1;
    for (MicroId m(1); m + period < MicroId(micros - 1); ++m) {
      if (!std::equal(at(m), at(m + 1), at(m + period), at(m + period + 1))) return false;
    }
    return true;
  }

  // Of so many micro-steps in the middle; 0 where there is no middle.
  int32_t in_period(int32_t period) const {
    MicroId begin(1), end(1 + period);
    return begins_.has(end) ? begins_[end] - begins_[begin] : 0;
  }

  // Those of the first `micros` - 1 micro-steps and of the last.
  Events some(int64_t micros) const {
    Events out;
    MicroId last(static_cast<int64_t>(begins_.size()) - 2);
    for (auto e = at(MicroId(0)); e != at(MicroId(micros - 1)); ++e) out.push_back(*e);
    for (auto e = at(last); e != events_.end(); ++e) out.push_back(*e);
    return out;
  }

 private:
  Events::const_iterator at(MicroId m) const { return events_.begin() + begins_[m].number(); }

  const Events& events_;
  IdVector<MicroId, EventId> begins_;  // and one past the last
};

// Emits the host's part of a step and closes a segment at every end of a micro-step. What the host
// does behind the last one has no gradients, and a segment of its own: nothing of the update runs
// with it.
class Recorder {
 public:
  // events: those of `micros` micro-steps.
  Recorder(const DelegatePlan& plan, ProgramBuilder& builder, StepBuffers& buffers, int64_t micros)
      : plan_(plan), builder_(builder), buffers_(buffers), last_(micros - 1) {}

  void emit(const Events& events) {
    start_micro(events.begin(), events.end());
    for (auto e = events.begin(); e != events.end(); ++e) {
      if (e->kind != HostEvent::Kind::end) {
        call(*e, EventId(e - events.begin()));
        continue;
      }
      zero_holes(true);
      builder_.end_segment(Phase::backward, micro_);
      ++micro_;
      if (micro_ <= last_) start_micro(e + 1, events.end());
    }
    if (events.back().kind != HostEvent::Kind::end) builder_.end_segment(Phase::leases);
  }

 private:
  using Event = Events::const_iterator;

  static Op op_of(HostEvent::Kind kind) {
    if (kind == HostEvent::Kind::gather) return Op::lease;
    if (kind == HostEvent::Kind::grad_view) return Op::grad_view;
    return kind == HostEvent::Kind::release ? Op::release : Op::grad;
  }

  void call(const HostEvent& e, EventId number) {
    bool grad = e.kind == HostEvent::Kind::grad || e.kind == HostEvent::Kind::grad_view;
    const IdVector<BucketId, BufferId>& from = grad ? buffers_.grads[micro_] : buffers_.full;
    std::vector<Operand> operands;
    for (ParamId p : e.params) {
      BucketId bucket = plan_.zero.layout.bucket_of[p];
      operands.push_back(param_operand(plan_.zero, builder_, from[bucket], p, plan_.types[p].shape,
                                       grad ? Access::write : Access::read));
    }
    builder_.emit(op_of(e.kind), std::move(operands), {}, std::min(micro_, last_)).event = number;
  }

  void start_micro(Event first, Event end) {
    add_grad_buffers(builder_, plan_.zero, buffers_);
    comes_.assign(plan_.types.size(), 0);
    for (; first != end && first->kind != HostEvent::Kind::end; ++first) {
      if (first->kind == HostEvent::Kind::grad) comes_[first->params[0]] = 1;
    }
    zero_holes(false);
  }

  // Padding and what does not come are zero. A bucket of which a trained parameter does not come
  // gets its zeros last, at the end of the micro-step, and is reduced behind them: the next time
  // the host may give that gradient after all.
  void zero_holes(bool last) {
    const IdVector<BucketId, BufferId>& grads = buffers_.grads[micro_];
    for (BucketId b : grads.ids()) {
      if (!grads[b].exists() || all_come(b) == last) continue;
      ds::zero_holes(builder_, plan_.zero, b, grads[b], micro_,
                     [&](ParamId p) { return comes_[p] != 0; });
    }
  }

  bool all_come(BucketId bucket) const {
    const std::vector<ParamPlace>& params = plan_.zero.layout.buckets[bucket].params;
    return std::all_of(params.begin(), params.end(), [&](const ParamPlace& place) {
      return comes_[place.param] || plan_.zero.trained.frozen[place.param];
    });
  }

  const DelegatePlan& plan_;
  ProgramBuilder& builder_;
  StepBuffers& buffers_;
  IdVector<ParamId, char> comes_;  // its gradient, in this micro-step
  MicroId micro_{0};
  const MicroId last_;
};

// The first micro-step of the repeated stretch.
MicroId first_repeated(const Program& program) {
  for (const Segment& s : program.segments) {
    if (s.end > program.repeat.begin && s.micro.exists()) return s.micro;
  }
  return MicroId(0);
}

// A micro-step as it is written out, and in which round.
struct WrittenMicro {
  MicroId micro;
  int32_t round = 0;
};

WrittenMicro written(const Program& program, MicroId micro) {
  const Repeat& repeat = program.repeat;
  int32_t later = micro - first_repeated(program), behind = repeat.rounds * repeat.micros;
  if (later < 0) return {micro, 0};
  if (later >= behind) return {micro - (behind - repeat.micros), 0};
  return {micro - later / repeat.micros * repeat.micros, later / repeat.micros};
}

// In the program calls have their numbers among those that are written out. events: calls of a
// round.
void place_events(RecordedStep& step, int32_t events) {
  Program& program = step.program;
  step.event_at.assign(step.events.size(), Position(none));
  step.event_end.assign(step.events.size(), Position());
  for (InstrId i : program.instrs.ids()) {
    EventId& event = program.instrs[i].event;
    if (!event.exists()) continue;
    if (i >= program.repeat.end) event = event + (program.repeat.rounds - 1) * events;
    for (int32_t round = 0; round < program.rounds(i); ++round) {
      step.event_at[event + round * events] = {i, round};
      step.event_end[event + round * events] = program.next({i, round});
    }
  }
  Position reached;  // the end of a micro-step runs what belongs to it
  MicroId micro(0);
  for (EventId e : step.events.ids()) {
    if (step.events[e].kind == HostEvent::Kind::end) {
      Position end = program.end_of(Phase::backward, micro++);
      step.event_end[e] = program.before(end, reached) ? reached : end;
    }
    reached = step.event_end[e];
  }
}

// A reduction begins where it reads the gradients, and ends with its last write of what it leaves
// behind: the bucket's sums and their norms.
class ReductionFinder {
 public:
  // grads: by written-out micro-step, what the host gives.
  ReductionFinder(RecordedStep& step, const ZeroPlan& plan,
                  const IdVector<MicroId, IdVector<BucketId, BufferId>>& grads)
      : step_(step),
        plan_(plan),
        grads_(grads),
        begun_at_(grads.size(),
                  IdVector<BucketId, InstrId>(plan.buckets.size(), step.program.instrs.past())),
        sums_of_(step.program.buffers.size()),
        grads_of_(step.program.buffers.size()) {
    step.reduced_at.assign(grads.size(), IdVector<BucketId, InstrId>(plan.buckets.size()));
    for (BucketId b : plan.buckets.ids()) {
      for (BufferId sum : plan.buckets[b].grad) sums_of_[sum] = b;
      for (MicroId m : grads.ids()) {
        if (grads[m][b].exists()) grads_of_[grads[m][b]] = {m, b};
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
    step_.reduced_at[written(step_.program, step_.program.instrs[i].micro).micro][bucket] = i + 1;
  }

  BucketId bucket_of_norm(int64_t begin) const {
    for (BucketId b : plan_.buckets.ids()) {
      bool here = plan_.buckets[b].norm_first * size_of(DS_DTYPE_F64) == begin;
      if (plan_.trains(b) && here) return b;
    }
    return none;
  }

  // The host may leave the step behind each of its calls. Ascending.
  std::vector<InstrId> places_to_leave() const {
    std::vector<InstrId> out;
    for (InstrId i : step_.program.instrs.ids()) {
      if (step_.program.instrs[i].event.exists()) out.push_back(i + 1);
    }
    for (const Segment& s : step_.program.segments) {
      if (s.phase == Phase::backward) out.push_back(s.end);
    }
    std::sort(out.begin(), out.end());
    return out;
  }

  void check() const {
    std::vector<InstrId> ends = places_to_leave();
    IdVector<MicroId, InstrId> micro_end;
    for (const Segment& s : step_.program.segments) {
      if (s.phase == Phase::backward) micro_end.push_back(s.end);
    }
    for (MicroId m : grads_.ids()) {
      for (BucketId b : plan_.buckets.ids()) {
        InstrId reduced = step_.reduced_at[m][b];
        if (!grads_[m][b].exists()) continue;
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
  const IdVector<MicroId, IdVector<BucketId, BufferId>>& grads_;
  IdVector<MicroId, IdVector<BucketId, InstrId>> begun_at_;
  IdVector<BufferId, BucketId> sums_of_;                       // the bucket whose sums it has
  IdVector<BufferId, std::pair<MicroId, BucketId>> grads_of_;  // micro-step and bucket
};

// False when the step cannot be written in this way.
bool write_step(RecordedStep& step, const DelegatePlan& plan, const Config& config,
                const Machine& machine, const WrittenOut& way, bool prefetch, bool late_reuse) {
  MicroCalls calls(step.events);
  bool whole = way.micros == plan.zero.accumulation;
  if (!whole && !calls.repeat_after(way.repeated)) return false;
  StepBuffers buffers;
  ProgramBuilder builder = begin_program(plan.zero, "step", 1, buffers);
  Recorder(plan, builder, buffers, way.micros).emit(whole ? step.events : calls.some(way.micros));
  emit_update(builder, plan.zero, config);
  step.program = builder.take();
  if (!finish_program(step.program, plan.zero, config, buffers, machine,
                      {.prefetch = prefetch,
                       .late_reuse = late_reuse,
                       .verify_passes = true,
                       .may_end_early = true,
                       .repeated = way.repeated}))
    return false;
  place_events(step, calls.in_period(way.repeated));
  ReductionFinder(step, plan.zero, buffers.grads).run();
  return true;
}

}  // namespace

Position RecordedStep::reduced(MicroId micro, BucketId bucket) const {
  auto [m, round] = written(program, micro);
  InstrId behind = reduced_at[m][bucket];
  if (!behind.exists()) return {};
  InstrId last = behind - 1;
  return program.next({last, program.repeat.has(last) ? round : 0});
}

std::optional<RecordedStep> compile_recorded(const DelegatePlan& plan, const Config& config,
                                             const Machine& machine,
                                             IdVector<EventId, HostEvent> events,
                                             std::span<const int64_t, 3> beside,
                                             int64_t written_out) {
  RecordedStep step;
  step.events = std::move(events);
  const bool overlap = config.zero.overlap_comm;
  for (auto [prefetch, late_reuse] :
       {std::pair{overlap, overlap}, {overlap, false}, {false, false}}) {
    for (const WrittenOut& way : ways_to_write(plan.zero.accumulation, written_out)) {
      if (write_step(step, plan, config, machine, way, prefetch, late_reuse)) break;
    }
    MemoryPlan memory;
    memory.add(step.program);
    for (size_t t = 0; t < 3; ++t) memory.tiers[t].transient += beside[t];
    if (fits(memory, config.memory_budget)) return step;
  }
  return std::nullopt;
}

}  // namespace ds
