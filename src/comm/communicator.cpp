#include "comm/communicator.h"

#include <fmt/core.h>

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
    (void)new auto(thread_);  // never ends: the thread is not this process's
    return;
  }
  thread_->leave(this, [this] {
    abort(fmt::format("rank {} has destroyed its communicator in a started collective",
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
void Communicator::tick() {
  if (thread_->idle()) exchange_->tick();  // it shows progress itself
}
int64_t Communicator::overhead_bytes() const { return exchange_->overhead_bytes(); }
const CallbackThreads* Communicator::callback_threads() const {
  return exchange_->callback_threads();
}
bool Communicator::one_process() const { return exchange_->one_process(); }
void Communicator::await_returns() const noexcept { exchange_->await_returns(); }
bool Communicator::reads_directly() const { return exchange_->reads_directly(); }

std::string Communicator::flight_record() const { return flight_->text(); }
Json Communicator::flight_json() const { return flight_->json(); }
void Communicator::set_flight_folder(std::string folder) { flight_->set_folder(std::move(folder)); }
std::string Communicator::flight_folder() const { return flight_->folder(); }

void Communicator::start(const Call& call) {
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

// Without memory of its own: its lack may be the error.
void Communicator::give_up(const std::exception& error) noexcept {
  char reason[kMostMessage];
  bool part = !exchange_->place().group.empty();
  char* end = fmt::format_to_n(reason, sizeof reason, "rank {} in {} '{}'{}{}{}: {}",
                               exchange_->world(rank_), intent_.operation, intent_.label,
                               part ? " of group '" : "", exchange_->place().group, part ? "'" : "",
                               error.what())
                  .out;
  try {
    exchange_->drop({reason, static_cast<size_t>(end - reason)});
  } catch (const std::exception&) {  // the group ends by its time-out
  }
  flight_->end(flight_number_, false);
  flight_->write(error.what());
}

void Communicator::check_root(int root) const {
  require(root >= 0 && root < size_, "root must be 0 to {}, got {}", size_ - 1, root);
}

}  // namespace ds
