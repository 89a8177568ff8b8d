// Compiles the step that a delegate host made as one program; delegate.cpp explains why.
//
// A call becomes an instruction. `lease` reads whole parameters. `grad` and `grad_view` write
// parameters' places in the micro-step's gradient buckets. `release` reads the parameters that its
// lease read, so that their memory stays in use until then. Further instructions zero padding and
// the gradients that the host does not pass. The passes do the rest. Two questions arise at run
// time, for which the compiler stores the answers: up to which instruction a call runs
// (place_events), and which buckets have been reduced when the host leaves the order
// (ReductionFinder).
//
// In a long step all micro-steps except the first and the last usually have the same calls. Then
// the program has only a few micro-steps, and passes/repeat.cpp repeats a stretch of them. A call
// of round r has the number of the same call in round 0 plus r times the number of calls in a
// round, and its instruction in round r. If a host's calls do not repeat, the step is written out.
#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "compile/delegate.h"
#include "compile/finish_program.h"
#include "compile/memory_plan.h"
#include "compile/plan.h"
#include "compile/search.h"
#include "core/base/dtype.h"
#include "core/base/error.h"
#include "core/base/ids.h"
#include "core/config/config.h"
#include "core/graph/graph.h"
#include "core/program/builder.h"
#include "core/program/choices.h"
#include "core/program/granules.h"
#include "core/program/instruction.h"
#include "core/program/program.h"
#include "update/update.h"
#include "zero/step_buffers.h"
#include "zero/zero_plan.h"

namespace ds {
namespace {

using Events = IdVector<EventId, HostEvent>;

// The calls of a step, divided into micro-steps. Calls after the end of the last micro-step belong
// to no micro-step.
class MicroCalls {
 public:
  explicit MicroCalls(const Events& events) : events_(events) {
    begins_.emplace_back(0);
    for (EventId e : events.ids()) {
      if (events[e].kind == HostEvent::Kind::end) begins_.push_back(e + 1);
    }
  }

  // Returns whether each micro-step has the same calls as the micro-step `period` later, among all
  // micro-steps except the first and the last.
  bool repeat_after(int32_t period) const {
    int32_t micros = static_cast<int32_t>(begins_.size()) - 1;
    for (MicroId m(1); m + period < MicroId(micros - 1); ++m) {
      if (!std::equal(at(m), at(m + 1), at(m + period), at(m + period + 1))) return false;
    }
    return true;
  }

  // Returns the number of calls of `period` micro-steps in the middle, or 0 for a shorter step.
  int32_t in_period(int32_t period) const {
    MicroId begin(1), end(1 + period);
    return begins_.has(end) ? begins_[end] - begins_[begin] : 0;
  }

  // Returns the calls of the first `micros` - 1 micro-steps, of the last micro-step and after it.
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
  // The first call of each micro-step and, as the last entry, the call after the end of the last
  // micro-step.
  IdVector<MicroId, EventId> begins_;
};

// An emitter of the host's part of a step. It ends a segment at every end of a micro-step. Calls
// after the last micro-step pass no gradients and form a separate segment, so that the update
// begins after them.
class Recorder {
 public:
  // `micros` is the number of micro-steps whose events emit() receives.
  Recorder(const Plan& plan, ProgramBuilder& builder, StepBuffers& buffers, int64_t micros)
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
      operands.push_back(param_operand(plan_.zero, builder_, from[bucket], p,
                                       plan_.host.types[p].shape,
                                       grad ? Access::write : Access::read));
    }
    builder_.emit(op_of(e.kind), std::move(operands), {}, std::min(micro_, last_)).event = number;
  }

  void start_micro(Event first, Event end) {
    add_grad_buffers(builder_, plan_.zero, buffers_);
    if (micro_ == MicroId(0)) take_accumulators();
    comes_.assign(plan_.host.types.size(), 0);
    for (; first != end && first->kind != HostEvent::Kind::end; ++first) {
      if (first->kind == HostEvent::Kind::grad) comes_[first->params[0]] = 1;
    }
    zero_holes(false);
  }

  // Lets the host write gradients into accumulators where that is possible. The transient buffers
  // that they replace have no uses and get no memory.
  void take_accumulators() {
    IdVector<BucketId, BufferId>& grads = buffers_.grads[micro_];
    for (BucketId b : grads.ids()) {
      if (plan_.host.first_grads[b] != plan_.host.grads[b]) grads[b] = plan_.host.first_grads[b];
    }
  }

  // Zeroes padding and the gradients that the host does not pass. If a trained parameter of a
  // bucket gets no gradient, the zeros are written at the end of the micro-step, so the bucket is
  // reduced only then: in the next step the host may pass this gradient.
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

  const Plan& plan_;
  ProgramBuilder& builder_;
  StepBuffers& buffers_;
  // Whether the host passes a gradient of the parameter in this micro-step.
  IdVector<ParamId, char> comes_;
  MicroId micro_{0};
  const MicroId last_;
};

// Returns the first micro-step of the repeated stretch.
MicroId first_repeated(const Program& program) {
  for (const Segment& s : program.segments) {
    if (s.end > program.repeat.begin && s.micro.exists()) return s.micro;
  }
  return MicroId(0);
}

// The place of a micro-step in the program: the micro-step that is written out, and the round.
struct WrittenMicro {
  MicroId micro;
  int32_t round = 0;
};

// Returns the place of a micro-step. Micro-steps after the repeated stretch are also written out.
// Their indices in the program are smaller by the number of micro-steps in all rounds except one.
WrittenMicro written(const Program& program, MicroId micro) {
  const Repeat& repeat = program.repeat;
  int32_t later = micro - first_repeated(program), behind = repeat.rounds * repeat.micros;
  if (later < 0) return {micro, 0};
  if (later >= behind) return {micro - (behind - repeat.micros), 0};
  return {micro - later / repeat.micros * repeat.micros, later / repeat.micros};
}

// Finds the instructions of all calls. Instr::event is at first the index of a call among the calls
// that are written out. For instructions after the repeated stretch, this function changes it to
// the index in the whole step. `events` is the number of calls in a round.
void place_events(Program& program, RecordedOrder& order, int32_t events) {
  order.event_at.assign(order.events.size(), Position(none));
  order.event_end.assign(order.events.size(), Position());
  for (InstrId i : program.instrs.ids()) {
    EventId& event = program.instrs[i].event;
    if (!event.exists()) continue;
    if (i >= program.repeat.end) event = event + (program.repeat.rounds - 1) * events;
    for (int32_t round = 0; round < program.rounds(i); ++round) {
      order.event_at[event + round * events] = {i, round};
      order.event_end[event + round * events] = program.next({i, round});
    }
  }
  // At the call that ends a micro-step, the rest of the micro-step runs. The position is never
  // before the end of an earlier call.
  Position reached;
  MicroId micro(0);
  for (EventId e : order.events.ids()) {
    if (order.events[e].kind == HostEvent::Kind::end) {
      Position end = program.end_of(Phase::backward, micro++);
      order.event_end[e] = program.before(end, reached) ? reached : end;
    }
    reached = order.event_end[e];
  }
}

// A search for the begin and the end of each reduction. A reduction begins with the first read of
// the gradients and ends with the last write of its results, which are the bucket's sums and their
// norms.
class ReductionFinder {
 public:
  // `grads` are the gradients that the host passes, for each micro-step that is written out.
  ReductionFinder(const Program& program, RecordedOrder& order, const ZeroPlan& plan,
                  const IdVector<MicroId, IdVector<BucketId, BufferId>>& grads)
      : program_(program),
        order_(order),
        plan_(plan),
        grads_(grads),
        begun_at_(grads.size(),
                  IdVector<BucketId, InstrId>(plan.buckets.size(), program.instrs.past())),
        sums_of_(program.buffers.size()),
        grads_of_(program.buffers.size()) {
    order.reduced_at.assign(grads.size(), IdVector<BucketId, InstrId>(plan.buckets.size()));
    for (BucketId b : plan.buckets.ids()) {
      for (BufferId sum : plan.buckets[b].grad) sums_of_[sum] = b;
      for (MicroId m : grads.ids()) {
        if (grads[m][b].exists()) grads_of_[grads[m][b]] = {m, b};
      }
    }
  }

  void run() {
    for (const Segment& s : program_.segments) {
      if (s.phase == Phase::backward) micro_end_.push_back(s.end);
    }
    for (InstrId i : program_.instrs.ids()) {
      for (const Operand& o : program_.instrs[i].operands) note(i, o);
    }
    check();
  }

 private:
  void note(InstrId i, const Operand& o) {
    if (o.access == Access::read) {
      auto [m, b] = grads_of_[o.buffer];
      if (b.exists() && i < micro_end_[m]) begun_at_[m][b] = std::min(begun_at_[m][b], i);
      return;
    }
    BucketId bucket = o.buffer == plan_.norms ? bucket_of_norm(o.begin) : sums_of_[o.buffer];
    if (!bucket.exists()) return;
    order_.reduced_at[written(program_, program_.instrs[i].micro).micro][bucket] = i + 1;
  }

  BucketId bucket_of_norm(int64_t begin) const {
    for (BucketId b : plan_.buckets.ids()) {
      bool here = plan_.buckets[b].norm_first * size_of(DS_DTYPE_F64) == begin;
      if (plan_.trains(b) && here) return b;
    }
    return none;
  }

  // Returns the positions at which the host may leave the step, in ascending order: after each call
  // and at the end of each micro-step.
  std::vector<InstrId> places_to_leave() const {
    std::vector<InstrId> out;
    for (InstrId i : program_.instrs.ids()) {
      if (program_.instrs[i].event.exists()) out.push_back(i + 1);
    }
    for (const Segment& s : program_.segments) {
      if (s.phase == Phase::backward) out.push_back(s.end);
    }
    std::sort(out.begin(), out.end());
    return out;
  }

  // Checks the invariant that allows the host to leave: none of these positions is inside a
  // reduction, and a micro-step ends after its reductions.
  void check() const {
    std::vector<InstrId> ends = places_to_leave();
    for (MicroId m : grads_.ids()) {
      for (BucketId b : plan_.buckets.ids()) {
        InstrId reduced = order_.reduced_at[m][b];
        if (!grads_[m][b].exists()) continue;
        // Gradients in an accumulator are only read if the micro-step is the last.
        if (begun_at_[m][b] == program_.instrs.past() && in_accumulator(m, b)) continue;
        auto within = std::upper_bound(ends.begin(), ends.end(), begun_at_[m][b]);
        bool whole = reduced > begun_at_[m][b] && (within == ends.end() || *within >= reduced);
        ensure(whole && reduced <= micro_end_[m],
               "the reduction of {} in micro-step {}, instructions {} to {}, is cut by a host call",
               plan_.layout.buckets[b].name, m, begun_at_[m][b], reduced);
      }
    }
  }

  bool in_accumulator(MicroId m, BucketId b) const {
    return grads_[m][b] == plan_.buckets[b].grad[0];
  }

  const Program& program_;
  RecordedOrder& order_;
  const ZeroPlan& plan_;
  const IdVector<MicroId, IdVector<BucketId, BufferId>>& grads_;
  IdVector<MicroId, IdVector<BucketId, InstrId>> begun_at_;
  // The end of each micro-step.
  IdVector<MicroId, InstrId> micro_end_;
  // The bucket whose sums a buffer holds.
  IdVector<BufferId, BucketId> sums_of_;
  // The micro-step and the bucket whose gradients a buffer holds.
  IdVector<BufferId, std::pair<MicroId, BucketId>> grads_of_;
};

// Compiles the step in one way of writing it out. Returns false if the host's calls or the program
// do not repeat as this way requires.
bool write_step(RecordedStep& step, const Plan& plan, const Config& config, const Machine& machine,
                const WrittenOut& way, const Choices& choices) {
  const Events& events = step.order.events;
  MicroCalls calls(events);
  bool whole = way.micros == plan.zero.accumulation;
  if (!whole && !calls.repeat_after(way.repeated)) return false;
  StepBuffers buffers;
  ProgramBuilder builder = begin_program(plan.zero, "step", 1, buffers);
  Recorder(plan, builder, buffers, way.micros).emit(whole ? events : calls.some(way.micros));
  emit_update(builder, plan.zero, config);
  step.program = builder.take();
  if (!finish_program(step.program, plan.zero, config, buffers, machine,
                      {.choices = choices,
                       .verify_passes = true,
                       .may_end_early = true,
                       .repeated = way.repeated}))
    return false;
  place_events(step.program, step.order, calls.in_period(way.repeated));
  ReductionFinder(step.program, step.order, plan.zero, buffers.grads).run();
  return true;
}

}  // namespace

Position RecordedOrder::reduced(const Program& program, MicroId micro, BucketId bucket) const {
  auto [m, round] = written(program, micro);
  InstrId behind = reduced_at[m][bucket];
  if (!behind.exists()) return {};
  InstrId last = behind - 1;
  return program.next({last, program.repeat.has(last) ? round : 0});
}

std::optional<RecordedStep> compile_recorded(const Plan& plan, const Config& config,
                                             const Machine& machine,
                                             IdVector<EventId, HostEvent> events,
                                             std::span<const int64_t, 3> beside,
                                             int64_t written_out, size_t first_choice) {
  RecordedStep step;
  step.order.events = std::move(events);
  std::vector<Choices> candidates = choices_by_memory(config);
  // The host keeps the activations, so choices that differ in recomputation are not available.
  std::erase_if(candidates, [&](const Choices& c) { return c.recompute != config.recompute; });
  if (first_choice >= candidates.size()) return std::nullopt;
  bool fit = false;
  // A step that does not fit is not refused, since fragments can serve the host's calls.
  step.choice = search(candidates, first_choice, [&](const Choices& choices) {
    for (const WrittenOut& way : ways_to_write(plan.zero.accumulation, written_out)) {
      if (write_step(step, plan, config, machine, way, choices)) break;
    }
    MemoryPlan memory;
    memory.add(step.program);
    for (size_t t = 0; t < 3; ++t) memory.tiers[t].transient += beside[t];
    return fit = fits(memory, config.memory_budget);
  });
  if (fit) return step;
  return std::nullopt;
}

}  // namespace ds
