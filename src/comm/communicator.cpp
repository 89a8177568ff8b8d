#include "comm/communicator.h"

#include <fmt/core.h>

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "comm/comm_log.h"
#include "comm/comm_thread.h"
#include "comm/exchange.h"
#include "comm/flight.h"
#include "core/base/callback_threads.h"
#include "core/base/error.h"
#include "core/base/trace.h"

namespace ds {

// This file has the parts that all collectives share: the intent that is compared, the counts, the
// log and the flight record, and the cleanup after an error. The collectives themselves are in
// collectives/.

Communicator::Communicator(std::unique_ptr<Exchange> exchange)
    : exchange_(std::move(exchange)),
      rank_(exchange_->rank()),
      size_(exchange_->size()),
      pairs_(static_cast<size_t>(size_)),
      flight_(std::make_shared<FlightRecord>(rank_, size_)),
      thread_(std::make_shared<CommThread>()),
      group_("all") {
  if (const char* folder = std::getenv("DS_FLIGHT_DIR")) flight_->set_folder(folder);
}

Communicator::Communicator(std::unique_ptr<Exchange> exchange, const Communicator& whole,
                           std::string group)
    : exchange_(std::move(exchange)),
      rank_(exchange_->rank()),
      size_(exchange_->size()),
      pairs_(static_cast<size_t>(size_)),
      flight_(whole.flight_),
      thread_(whole.thread_),
      group_(std::move(group)) {}

Communicator::~Communicator() {
  if (thread_->forked()) {
    // The thread belongs to the parent process and cannot be joined here: leaking a reference keeps
    // it from being destroyed.
    (void)new auto(thread_);
    return;
  }
  thread_->leave(this, [this] {
    abort(fmt::format("rank {} has destroyed its communicator during a started collective",
                      exchange_->world(rank_)));
  });
}

int Communicator::local_rank() const { return exchange_->local_rank(); }
int Communicator::local_size() const { return exchange_->local_size(); }
void Communicator::abort(std::string_view reason) {
  exchange_->abort(reason);
  flight_->write(reason);
}
void Communicator::set_timeout(int64_t ms) {
  thread_->drain();
  exchange_->set_timeout(ms);
}
int64_t Communicator::timeout_ms() const {
  const int64_t own = exchange_->timeout_ms();
  return own > 0 ? own : CommOptions().timeout_ms;
}
void Communicator::tick() {
  // While started collectives run, their thread marks progress.
  if (thread_->idle()) exchange_->tick();
}
const CallbackThreads* Communicator::callback_threads() const {
  return exchange_->callback_threads();
}

void Communicator::start(const Call& call) {
  // A direct collective waits for those that were started, so that collectives run in the order of
  // the calls on every rank. A send and its receive are both called "send" and have the same
  // number.
  thread_->drain();
  if (log_) begun_ns_ = now_ns();
  bool pair = call.peer >= 0;
  uint64_t number = pair ? pairs_[static_cast<size_t>(call.peer)]++ : sequence_++;
  intent_.set(number, pair ? "send" : call.operation, call.detail, call.bytes, call.label);
  intent_.counts_hash = call.counts_hash;
  flight_number_ = flight_->start(group_, call.operation, intent_);
  if (!pair) exchange_->begin(intent_);
}

void Communicator::finish(const Call& call, size_t received) {
  flight_->end(flight_number_, true);
  if (!call.counted) return;
  counts_.add(call.operation, received);
  if (!log_) return;
  log_->add(call.operation, call.bytes, received, now_ns() - begun_ns_);
  if (log_->full()) settle_log();
}

void Communicator::watch(std::string_view operation, std::string_view label,
                         const std::string& found) {
  Intent about;
  about.set(sequence_, operation, "", 0, label);
  try {
    exchange_->watch(about);
    if (!found.empty()) exchange_->fail(found);
  } catch (const std::exception& error) {
    flight_->write(error.what());
    throw;
  }
}

// Ends the group after an error. The reason is formatted without allocating, because running out of
// memory may be the error.
void Communicator::give_up(const std::exception& error) noexcept {
  char reason[kMostMessage];
  bool part = !exchange_->place().group.empty();
  std::snprintf(reason, sizeof reason, "rank %d in %s '%s'%s%s%s: %s", exchange_->world(rank_),
                intent_.operation, intent_.label, part ? " of group '" : "",
                exchange_->place().group.c_str(), part ? "'" : "", error.what());
  try {
    exchange_->drop(reason);
  } catch (const std::exception&) {
    // drop() failed, so the other ranks end only by their time-outs.
  }
  flight_->end(flight_number_, false);
  flight_->write(error.what());
}

}  // namespace ds
