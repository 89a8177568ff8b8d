// Implements delegate mode along the recorded order: following it, leaving it, and recording
// another one.
//
// Invariant: while order_.following(), the calls of this step are a prefix of the record, and the
// recorded program has run exactly up to the last of them. So leaving the record only requires
// copying the gradients that the program has received but not yet reduced; everything else is
// already in its final place.
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

#include "checkpoint/agree.h"
#include "compile/delegate.h"
#include "compile/plan.h"
#include "compile/search.h"
#include "core/base/error.h"
#include "core/base/hash.h"
#include "core/base/log.h"
#include "core/base/round.h"
#include "core/device/stream.h"
#include "engine/delegate.h"
#include "engine/host_order.h"
#include "engine/leases.h"
#include "engine/observer.h"

namespace ds {
bool DelegateEngine::follow(HostEvent event) {
  bool fits = micros_.usual() && order_.expects(event);
  runtime_.guarded([&] {
    if (fits) return;
    // All calls so far were an evaluation, because the host begins the recorded order again.
    if (micros_.usual() && !begun_ && leased_ == 0 && order_.begins_with(event)) {
      forget_calls();
      fits = true;
    } else if (order_.following()) {
      leave_record();
    }
  });
  if (!fits && !begun_) order_.drop_old(leased_ == 0);
  EventId at;
  if (fits || !evaluating_) at = order_.add(std::move(event));
  if (fits) runtime_.guarded([&] { run_recorded(order_.record().event_end[at], at); });
  return fits;
}

void DelegateEngine::forget_calls() {
  if (order_.following() && !order_.events().empty()) executor(ProgramKind::step).abandon();
  begun_ = false;
  order_.begin();
}

// Called when the host has left the recorded order. Results of the recorded program remain valid;
// the rest of the step is served call by call. Leases in the memory of the recorded program stay
// there until they are released.
void DelegateEngine::leave_record() {
  order_.leave();
  Position done = executor(ProgramKind::step).position();
  executor(ProgramKind::step).abandon();
  if (begun_ && !micros_.all_done()) take_gradients(done);
}

void DelegateEngine::take_gradients(Position done) {
  // The loop goes back over the calls of this micro-step. Buckets that the program has reduced are
  // finished. Other gradients are copied from the program's memory to the places that they have in
  // a step that runs call by call.
  const Program& program = plan_.step();
  const HostOrder::Events& events = order_.events();
  runtime_.settle();
  for (EventId e = events.last(); e.exists() && events[e].kind != HostEvent::Kind::end; --e) {
    if (events[e].kind != HostEvent::Kind::grad) continue;
    BucketId b = store_.bucket_of(events[e].params[0]);
    leases_.buckets[b].reduced =
        !program.before(done, order_.record().reduced(program, MicroId(micros_.done()), b));
    if (leases_.buckets[b].reduced) continue;
    Position at = order_.record().event_at[e];
    const Operand grads = in_round(program.instrs[at.instr].operands[0], at.round);
    // An accumulator that holds gradients is their place in both forms of the step.
    if (grads.buffer == plan_.host.first_grads[b]) continue;
    const Leases::Place to = leases_.grad_place(events[e].params[0]);
    runtime_.memory().copy(*to.buffer, to.begin, program.buffers[grads.buffer], grads.begin,
                           grads.bytes(1));
  }
}

int64_t DelegateEngine::program_bytes(Tier tier) const {
  return plan_.has(ProgramKind::step)
             ? round_up(plan_.step().arenas[static_cast<int>(tier)].transient, kFileBlock)
             : 0;
}

// Runs the update after all micro-steps. Ranks first compare their orders, so no rank begins an
// update if the host of another rank made different calls.
void DelegateEngine::finish_calls() {
  const bool as_recorded = order_.complete();
  HostOrder::Events calls = as_recorded ? HostOrder::Events() : order_.training_calls();
  std::string hash = as_recorded ? order_.record_hash() : HostOrder::hash_of(calls);
  compare_orders(as_recorded ? order_.record().events : calls, hash);
  if (micros_.cut_short() || !config().by_tokens())
    control_.set_weight(micros_.total(runtime_.data_ranks()));
  // All ranks have made the same calls, so they leave out the same parameters.
  if (config().skip_missing) control_.leave_out(leases_.without_gradient());
  if (as_recorded) {
    run_recorded(plan_.step().end());
  } else {
    if (order_.following()) leave_record();
    if (micros_.cut_short()) {
      reduce_ready(true);
      leases_.begin_micro_step();
    }
    executor(ProgramKind::update).run();
    if (order_.whole() && micros_.usual() && !config().zero.sanity_checks)
      record(calls, std::move(hash));
  }
  order_.clear();
}

void DelegateEngine::forget_late_programs() {
  order_.forget_record();
  std::erase_if(plan_.programs, [](const auto& entry) {
    const ProgramKind kind = entry.first.kind;
    return kind == ProgramKind::step || kind == ProgramKind::gather || kind == ProgramKind::reduce;
  });
}

// Compiles the step that has just run call by call.
void DelegateEngine::record(const HostOrder::Events& calls, std::string hash) {
  int64_t bytes[3];
  // The program's memory is rounded up to whole blocks.
  for (int t = 0; t < 3; ++t) bytes[t] = plan_.memory.tiers[t].transient + kFileBlock;
  std::optional<RecordedStep> made;
  agree_on_choice([&](size_t first) {
    made = compile_recorded(plan_, config(), machine(), calls, bytes,
                            runtime_.options().programs.written_out, first);
    return made ? made->choice : kNoChoice;
  });
  if (!made) {
    if (runtime_.comm().rank() == 0 && !told_) {
      log_line(LogLevel::warning,
               "memory_budget has no room for the recorded step: it goes on call by call");
    }
    told_ = true;
    if (!order_.recorded()) return;
  }
  end_executors();
  forget_late_programs();
  if (made) {
    Program& program =
        plan_.programs.emplace(ProgramKind::step, std::move(made->program)).first->second;
    order_.set_record(std::move(made->order), std::move(hash));
    if (runtime_.options().program_filter) runtime_.options().program_filter(program);
  }
  for (int t = 0; t < 3; ++t)
    bytes[t] = program_bytes(static_cast<Tier>(t)) + plan_.memory.tiers[t].transient;
  runtime_.resize_transient(bytes);
  // The places of gradients in a step that runs call by call are not needed while the record is
  // followed, so their pages are returned to the system.
  for (BucketId b : plan_.host.grads.ids()) {
    if (plan_.host.grads[b].exists())
      runtime_.memory().discard(runtime_.buffer(plan_.host.grads[b]));
  }
  make_executors();
}

// Throws on every rank if another rank made other calls in this step, or set other numbers for it.
void DelegateEngine::compare_orders(const HostOrder::Events& calls, const std::string& hash) {
  const std::vector<double> numbers = micros_.common();
  Hash128 all_of_it;
  all_of_it.update(hash);
  all_of_it.update(numbers.data(), numbers.size() * sizeof(double));
  Communicator& comm = runtime_.comm();
  const std::string mine = all_of_it.hex();
  std::string all(mine.size() * static_cast<size_t>(comm.size()), ' ');
  comm.all_gather(mine.data(), all.data(), mine.size(), "order of host calls");
  bool same = true;
  for (size_t r = 0; r < all.size(); r += mine.size())
    same &= all.compare(r, mine.size(), mine) == 0;
  if (same) return;
  // The hashes show only that orders differ, so ranks exchange their calls to name the first one.
  const std::vector<std::string> orders =
      gather_texts(comm, HostOrder::text_of(calls, plan_.host.params), "host calls");
  const auto own = static_cast<size_t>(comm.rank());
  const auto other = static_cast<size_t>(
      std::ranges::find_if(orders, [&](const auto& order) { return order != orders[own]; }) -
      orders.begin());
  if (other == orders.size()) {
    raise(DS_ERROR_COMM,
          "the host on rank {} has {} micro-steps in step {} and divides by {} (0: by their "
          "number), the host on another rank does not: all ranks must set the same micro_steps and "
          "mean_micro_steps",
          RankNumber(comm.rank()), numbers[0], control_.steps(), numbers[2]);
  }
  raise(DS_ERROR_COMM,
        "the host on rank {} made its {} calls of step {} in another order than rank {}: {}",
        RankNumber(comm.rank()), calls.size(), control_.steps(), other,
        HostOrder::first_difference(orders[own], orders[other], static_cast<int>(other)));
}

void DelegateEngine::run_recorded(Position end, EventId event) {
  if (!observer_) {
    executor(ProgramKind::step).run_to(end);
    return host_call(event);
  }
  StepSight sight{plan_.step(), plan_.zero, runtime_, 1, control_};
  run_observed(executor(ProgramKind::step), end, sight, *observer_, [&](Position at) {
    if (event.exists() && at == order_.record().event_at[event]) host_call(event);
  });
}

// Performs the host's part of an instruction that has just run, while no later one has begun. All
// earlier uses of its operands' memory have ended, because the instruction waited for them.
void DelegateEngine::host_call(EventId event) {
  if (!event.exists()) return;
  const HostEvent& call = order_.record().events[event];
  if (call.kind == HostEvent::Kind::release || call.kind == HostEvent::Kind::end) return;
  Position at = order_.record().event_at[event];
  const std::vector<Operand>& operands = plan_.step().instrs[at.instr].operands;
  for (size_t k = 0; k < operands.size(); ++k) {
    const Operand o = in_round(operands[k], at.round);
    const Buffer& buffer = plan_.step().buffers[o.buffer];
    if (call.kind == HostEvent::Kind::gather) {
      leases_.params[call.params[k]].place = {&buffer, o.begin};
    } else if (call.kind == HostEvent::Kind::grad_view) {
      leases_.params[call.params[k]].grad.place = {&buffer, o.begin};
    } else {
      leases_.put(pending_, {&buffer, o.begin}, o.type.shape.numel(1));
    }
  }
}

}  // namespace ds
