// Delegate mode along the recorded order: following it, leaving it, recording another one.
#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "compile/delegate.h"
#include "core/base/error.h"
#include "core/base/hash.h"
#include "core/base/log.h"
#include "core/base/round.h"
#include "core/device/stream.h"
#include "engine/delegate.h"
#include "engine/observer.h"

namespace ds {
namespace {

// Calls before the first gradient of a step that are kept: a host that only evaluates makes any
// number.
constexpr size_t kMostCallsBefore = 1 << 17;

std::string hash_of(const IdVector<EventId, HostEvent>& events) {
  Hash128 hash;
  for (const HostEvent& e : events) {
    hash.update(fmt::format("{} {} ", static_cast<int>(e.kind), e.params.size()));
    hash.update(e.params.data(), e.params.size() * sizeof(ParamId));
  }
  return hash.hex();
}

}  // namespace

bool DelegateEngine::follow(HostEvent event) {
  EventId at = events_.past();
  bool fits = following_ && record_->events.has(at) && record_->events[at] == event;
  runtime_.guarded([&] {
    if (fits) return;
    if (begins_record(event)) {
      forget_calls();
      fits = true;
    } else if (following_) {
      leave_record();
    }
  });
  bool anew = events_.size() >= kMostCallsBefore || (!whole_ && leased_ == 0);
  if (!fits && !begun_ && anew) {
    events_.clear();
    whole_ = leased_ == 0;
  }
  if (fits || !evaluating_) events_.push_back(std::move(event));
  if (fits)
    runtime_.guarded([&] { run_recorded(record_->event_end[events_.last()], events_.last()); });
  return fits;
}

// Whether all that the host has done so far was evaluation, and now it begins the step as it did
// before.
bool DelegateEngine::begins_record(const HostEvent& event) const {
  return record_ && !begun_ && leased_ == 0 && record_->events[0] == event;
}

void DelegateEngine::forget_calls() {
  if (following_ && !events_.empty()) step_->abandon();
  events_.clear();
  begun_ = false;
  micro_ = 0;
  whole_ = true;
  following_ = record_ != nullptr;
}

// The host has left its order: what the recorded program has done of this step stays, the rest goes
// call by call. Leases that the program gave stay where they are until released.
void DelegateEngine::leave_record() {
  following_ = false;
  Position done = step_->position();
  step_->abandon();
  if (begun_ && micro_ < config().accumulation) take_gradients(done);
}

void DelegateEngine::take_gradients(Position done) {
  const Program& program = record_->program;
  runtime_.settle();
  for (EventId e = events_.last(); e.exists() && events_[e].kind != HostEvent::Kind::end; --e) {
    if (events_[e].kind != HostEvent::Kind::grad) continue;
    BucketId b = store_.bucket_of(events_[e].params[0]);
    reduced_[b] = !program.before(done, record_->reduced(MicroId(micro_), b));
    if (reduced_[b]) continue;
    Position at = record_->event_at[e];
    const Operand grads = in_round(program.instrs[at.instr].operands[0], at.round);
    runtime_.copy(runtime_.buffer(plan_.grads[b]), own_place(events_[e].params[0]).begin,
                  program.buffers[grads.buffer], grads.begin, grads.bytes(1));
  }
}

int64_t DelegateEngine::program_bytes(int tier) const {
  return record_ ? round_up(record_->program.arenas[tier].transient, kFileBlock) : 0;
}

// The update, behind all micro-steps: no rank begins it when the hosts of others did something
// else.
void DelegateEngine::finish_calls() {
  bool as_recorded = following_ && events_.size() == record_->events.size();
  IdVector<EventId, HostEvent> order =
      as_recorded ? IdVector<EventId, HostEvent>() : training_calls();
  std::string hash = as_recorded ? record_hash_ : hash_of(order);
  compare_orders(hash);
  if (as_recorded) {
    run_recorded(record_->program.end());
  } else {
    if (following_) leave_record();
    update_->run();
    if (whole_) record(std::move(order), std::move(hash));
  }
  events_.clear();
}

// The step's calls without those of evaluation before it: from the last time that the host, without
// a lease, gathered what it had gathered first, if behind that it gathered everything else again,
// too.
IdVector<EventId, HostEvent> DelegateEngine::training_calls() const {
  EventId first_gradient(0), begin(0);
  std::map<ParamId, EventId> last;  // the last gather of a parameter
  for (; events_.has(first_gradient); ++first_gradient) {
    const HostEvent& e = events_[first_gradient];
    if (e.kind == HostEvent::Kind::release) continue;
    if (e.kind != HostEvent::Kind::gather) break;
    for (ParamId p : e.params) last[p] = first_gradient;
  }
  EventId latest = first_gradient;
  for (auto [param, at] : last) latest = std::min(latest, at);
  int64_t leased = 0;
  for (EventId e(0); e < first_gradient && e <= latest; ++e) {
    if (leased == 0 && events_[e] == events_[0]) begin = e;
    auto count = static_cast<int64_t>(events_[e].params.size());
    leased += events_[e].kind == HostEvent::Kind::gather ? count : -count;
  }
  return {events_.begin() + begin.number(), events_.end()};
}

// Compiles the step that was just made call by call.
void DelegateEngine::record(IdVector<EventId, HostEvent> order, std::string hash) {
  int64_t beside[3];
  // The program's memory is rounded up to whole blocks.
  for (int t = 0; t < 3; ++t) beside[t] = fragment_transient_[t] + kFileBlock;
  record_hash_ = std::move(hash);
  std::optional<RecordedStep> made =
      compile_recorded(plan_, config(), machine(), std::move(order), beside,
                       runtime_.options().programs.written_out);
  if (!made) {
    if (runtime_.comm().rank() == 0 && !told_) {
      log_line(LogLevel::warning,
               "memory_budget has no room for the recorded step: it goes on call by call");
    }
    told_ = true;
    if (!record_) return;
  }
  end_all_executors();
  record_ = made ? std::make_unique<RecordedStep>(std::move(*made)) : nullptr;
  if (record_ && runtime_.options().program_filter)
    runtime_.options().program_filter(record_->program);
  MemoryPlan memory;
  for (int t = 0; t < 3; ++t) {
    memory.tiers[t].transient = program_bytes(t) + fragment_transient_[t];
  }
  runtime_.resize_transient(memory);
  for (BucketId b : plan_.grads.ids()) {  // pages of the call-by-call step
    if (plan_.grads[b].exists()) runtime_.discard(plan_.grads[b]);
  }
  make_all_executors();
}

void DelegateEngine::compare_orders(const std::string& mine) {
  std::string all(mine.size() * static_cast<size_t>(runtime_.comm().size()), ' ');
  runtime_.comm().all_gather(mine.data(), all.data(), mine.size(), "order of host calls");
  for (int r = 0; r < runtime_.comm().size(); ++r) {
    if (all.compare(mine.size() * static_cast<size_t>(r), mine.size(), mine) == 0) continue;
    raise(DS_ERROR_COMM,
          "the host on rank {} made {} calls of step {} in another order than rank {}",
          RankNumber(runtime_.comm().rank()), events_.size(), control_.steps(), r);
  }
}

void DelegateEngine::run_recorded(Position end, EventId event) {
  if (!observer_) {
    step_->run_to(end);
    return host_call(event);
  }
  StepSight sight{record_->program, plan_.zero, runtime_, 1, control_};
  run_observed(*step_, end, sight, *observer_, [&](Position at) {
    if (event.exists() && at == record_->event_at[event]) host_call(event);
  });
}

// The host's side of an instruction that has just run, and no later one has begun: all that used
// its operands' memory before has ended, because the instruction waited for it.
void DelegateEngine::host_call(EventId event) {
  if (!event.exists()) return;
  const HostEvent& call = record_->events[event];
  if (call.kind == HostEvent::Kind::release || call.kind == HostEvent::Kind::end) return;
  Position at = record_->event_at[event];
  const std::vector<Operand>& operands = record_->program.instrs[at.instr].operands;
  for (size_t k = 0; k < operands.size(); ++k) {
    const Operand o = in_round(operands[k], at.round);
    const Buffer& buffer = record_->program.buffers[o.buffer];
    if (call.kind == HostEvent::Kind::gather) {
      where_[call.params[k]] = {&buffer, o.begin};
    } else if (call.kind == HostEvent::Kind::grad_view) {
      grad_where_[call.params[k]] = {&buffer, o.begin};
    } else {
      put_pending(buffer, o.begin, o.type.shape.numel(1));
    }
  }
}

void DelegateEngine::put_pending(const Buffer& to, int64_t begin, int64_t numel) {
  int64_t unit = size_of(to.dtype);
  std::byte* place = runtime_.address(to) + begin;
  const StreamRef& stream = pending_.stream;
  if (pending_.dtype != to.dtype) {
    if (stream) stream->synchronize();  // its elements are converted here and now
    return runtime_.write_floats(to, begin / unit, numel, static_cast<const float*>(pending_.data));
  }
  if (pending_.data != place) {
    if (stream) {
      stream->queue().copy(place, pending_.data, numel * unit);
    } else {
      runtime_.write(to, begin, pending_.data, numel * unit);
    }
  }
  runtime_.order_after(stream);
}

}  // namespace ds
