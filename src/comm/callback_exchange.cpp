// Problem. A program that has process groups of its own (torch's, oneCCL's, a scheduler's) gives
// libds its collectives as callbacks, and expects the results that every other transport gives.
//
// Invariant. Callbacks only move bytes. All ranks make the same sequence of calls, which they have
// compared beforehand (begin()), and two ranks decide alike which callback makes a round: an
// all_gather where each rank gives the same part to all and the parts come to lie one after the
// other, else an all_to_all. Both conditions follow from the arguments that the ranks have
// compared.
//
// Algorithm. The ranks of the callbacks swap by all_gather and all_to_all. A group that was split
// from them cannot, since the collectives of the caller need all ranks; its ranks meet in pairs. In
// step s of n, rank r of n meets rank (s - r) mod n, which meets it in the same step, and the one
// with the lower number in the world sends first. Nobody waits in a circle: whoever waits in a step
// waits for a rank in an earlier one. libds sees nothing of a rank that a callback waits for, so it
// has no time-outs and no signs of life here.
//
// Cost. One all_gather of sizeof(Intent) bytes for each collective more than its rounds; the stage,
// and some 300 bytes for each other rank. Nothing is copied here but a rank's own part.
//
// Source. The division between collectives and what moves bytes is docs/adr/0010; callbacks are
// docs/adr/0069.
#include "comm/callback_exchange.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>

#include "comm/build_name.h"
#include "comm/transport/transport.h"
#include "core/base/error.h"

namespace ds {

// The callbacks, shared by the groups that were split from one comm.
class CallerCollectives {
 public:
  CallerCollectives(const ds_comm_callbacks& callbacks, int rank, int size)
      : calls(callbacks), rank(rank), size(size), process(getpid()) {}
  ~CallerCollectives() {
    if (owned && calls.destroy && getpid() == process) calls.destroy(calls.user_data);
  }
  CallerCollectives(const CallerCollectives&) = delete;
  CallerCollectives& operator=(const CallerCollectives&) = delete;

  const ds_comm_callbacks calls;
  const int rank, size;
  const int process;   // a forked child has no part in the group
  bool owned = false;  // user_data is ours to destroy
  CallbackThreads threads;
  mutable std::mutex mutex;  // of ended
  std::string ended;         // why this rank ended the group
};

CallbackExchange::CallbackExchange(std::shared_ptr<CallerCollectives> calls)
    : CallbackExchange(calls, Membership::whole(calls->rank, calls->size)) {}

CallbackExchange::CallbackExchange(std::shared_ptr<CallerCollectives> calls, Membership place)
    : Exchange(std::move(place)), calls_(std::move(calls)), stage_(size()) {
  const auto ranks = static_cast<size_t>(size());
  intents_.resize(ranks);
  ins_.resize(ranks);
  outs_.resize(ranks);
  in_sizes_.resize(ranks);
  out_sizes_.resize(ranks);
  greet();
}

void CallbackExchange::greet() {
  struct Introduction {
    Greeting greeting;
    int32_t rank, size;         // in the world
    int32_t all_gather, pairs;  // whether the caller has these callbacks
  };
  const Introduction own{Greeting::own(), world(rank()), calls_->size,
                         calls_->calls.all_gather ? 1 : 0, meets_pairs() ? 1 : 0};
  std::vector<Introduction> all(intents_.size());
  std::vector<Part> sends(all.size(), Part{const_cast<Introduction*>(&own), sizeof own}),
      receives(all.size());
  for (size_t r = 0; r < all.size(); ++r) receives[r] = {&all[r], sizeof own};
  intent_.set(0, "join", "", sizeof own, "");
  check_abort();
  swap(sends.data(), receives.data());  // by all_to_all, which every rank has
  std::vector<Greeting> greetings(all.size());
  for (size_t r = 0; r < all.size(); ++r) {
    const int wanted = world(static_cast<int>(r));
    greetings[r] = all[r].greeting;
    if (greetings[r].build.text[0] == '\0')
      fail(fmt::format("all_to_all has delivered nothing from rank {}", wanted));
    if (std::memcmp(&greetings[r].build, &own.greeting.build, sizeof(BuildName)) != 0) continue;
    if (all[r].rank != wanted || all[r].size != calls_->size) {
      fail(fmt::format("the place of rank {} of {} holds what rank {} of {} has sent", wanted,
                       calls_->size, all[r].rank, all[r].size));
    }
    auto check_callback = [&](const char* name, int32_t mine, int32_t theirs) {
      if (mine == theirs) return;
      fail(fmt::format("rank {} gives {}, and rank {} does not", mine != 0 ? own.rank : wanted,
                       name, mine != 0 ? wanted : own.rank));
    };
    check_callback("all_gather", own.all_gather, all[r].all_gather);
    check_callback("send and receive", own.pairs, all[r].pairs);
  }
  std::string reason;
  neighbours_ = meet_neighbours(place(), greetings, &reason);
  if (!reason.empty()) fail(reason);
  gathers_ = place().group.empty() && calls_->calls.all_gather;
  if (!place().group.empty()) return;
  try_swap();
  if (gathers_) try_gather();
}

void CallbackExchange::try_gather() {
  // These sizes are not multiples of the size of a number; nor are those of texts and codes.
  for (const size_t bytes : {size_t{1}, size_t{7}, size_t{4099}}) {
    auto part_of = [&](int from) { return std::string(bytes, static_cast<char>(from * 7 + 1)); };
    std::string mine = part_of(rank()), all(bytes * intents_.size(), '\0');
    std::vector<Part> sends(intents_.size(), Part{mine.data(), bytes}), receives(intents_.size());
    for (size_t r = 0; r < receives.size(); ++r) receives[r] = {all.data() + r * bytes, bytes};
    swap(sends.data(), receives.data());
    for (int r = 0; r < size(); ++r) {
      if (all.compare(static_cast<size_t>(r) * bytes, bytes, part_of(r)) != 0)
        fail(fmt::format("all_gather has delivered other bytes than the {} that rank {} has sent",
                         bytes, r));
    }
  }
}

void CallbackExchange::try_swap() {
  // The part of one rank for another, from none to eight bytes.
  auto part_of = [](int from, int to) {
    return std::string(static_cast<size_t>(from * 5 + to * 3) % 9,
                       static_cast<char>(from * 16 + to));
  };
  std::vector<std::string> mine(intents_.size()), theirs(intents_.size());
  std::vector<Part> sends(intents_.size()), receives(intents_.size());
  for (int r = 0; r < size(); ++r) {
    auto seat = static_cast<size_t>(r);
    mine[seat] = part_of(rank(), r);
    theirs[seat].resize(part_of(r, rank()).size());
    sends[seat] = {mine[seat].data(), mine[seat].size()};
    receives[seat] = {theirs[seat].data(), theirs[seat].size()};
  }
  swap(sends.data(), receives.data());
  for (int r = 0; r < size(); ++r) {
    if (theirs[static_cast<size_t>(r)] != part_of(r, rank()))
      fail(fmt::format(
          "all_to_all has delivered other bytes from rank {} than it has sent to rank {}", r,
          rank()));
  }
}

void CallbackExchange::enter(const Intent& intent) {
  intent_ = intent;
  need_maker(intent_, calls_->process);
  check_abort();
}

void CallbackExchange::begin(const Intent& intent) {
  enter(intent);
  std::vector<Part> sends(intents_.size(), Part{&intent_, sizeof intent_}),
      receives(intents_.size());
  for (size_t r = 0; r < receives.size(); ++r) receives[r] = {&intents_[r], sizeof intents_[r]};
  swap(sends.data(), receives.data());
  for (int r = 0; r < size(); ++r) check_intent(r, intents_[static_cast<size_t>(r)]);
}

void CallbackExchange::check_intent(int r, const Intent& theirs) {
  if (r == rank()) return;
  std::string reason = intents_differ(world(rank()), intent_, world(r), theirs);
  if (!reason.empty()) fail(reason);
}

size_t CallbackExchange::prepare(Round kind, size_t) {
  // All parts of a round have at most 1 GiB, so that their places are numbers of 32 bits for the
  // caller.
  constexpr size_t kMostRound = size_t{1} << 30;
  const size_t most = std::max<size_t>(kMostRound / static_cast<size_t>(size()) / 64, 1) * 64;
  return kind == Round::seen ? stage_.part_bytes() : std::min(kMostPart, most);
}

void CallbackExchange::round(const Part* sends, const Part* receives) {
  swap(sends, stage_.places(rank(), receives));
}

const std::byte* CallbackExchange::see(int r, size_t offset, size_t) {
  return stage_.of(r) + offset;
}

void CallbackExchange::swap(const Part* sends, const Part* receives) {
  const auto ranks = static_cast<size_t>(size()), own = static_cast<size_t>(rank());
  if (ranks > 1 && !place().group.empty()) {
    swap_by_pairs(sends, receives);
  } else if (ranks > 1) {
    const size_t bytes = sends[own].size;
    auto* all = static_cast<std::byte*>(receives[0].data);
    bool gathers = gathers_ && bytes > 0;
    for (size_t r = 0; r < ranks && gathers; ++r) {
      gathers = sends[r].data == sends[0].data && sends[r].size == bytes &&
                receives[r].size == bytes && receives[r].data == all + r * bytes;
    }
    if (gathers) {
      CallbackThreads::Inside inside(calls_->threads, CallbackThreads::kWork);
      return check("all_gather",
                   calls_->calls.all_gather(sends[0].data, bytes, all, calls_->calls.user_data));
    }
    for (size_t r = 0; r < ranks; ++r) {
      const Part none{}, give = r == own ? none : sends[r], take = r == own ? none : receives[r];
      ins_[r] = give.size == 0 ? nullptr : give.data;
      outs_[r] = take.size == 0 ? nullptr : take.data;
      in_sizes_[r] = give.size;
      out_sizes_[r] = take.size;
    }
    CallbackThreads::Inside inside(calls_->threads, CallbackThreads::kWork);
    check("all_to_all", calls_->calls.all_to_all(ins_.data(), in_sizes_.data(), outs_.data(),
                                                 out_sizes_.data(), calls_->calls.user_data));
  }
  take_own(sends, receives, 0);
}

void CallbackExchange::swap_by_pairs(const Part* sends, const Part* receives) {
  for (int step = 0; step < size(); ++step) {
    const int r = (step - rank() + size()) % size();
    if (r != rank()) swap_with(r, sends[r], receives[r]);
  }
}

void CallbackExchange::swap_with(int r, Part give_part, Part take_part) {
  const bool first = world(rank()) < world(r);
  if (first) give(r, give_part);
  take(r, take_part);
  if (!first) give(r, give_part);
}

void CallbackExchange::give(int r, Part part) {
  if (part.size == 0) return;
  CallbackThreads::Inside inside(calls_->threads, CallbackThreads::kWork);
  check("send", calls_->calls.send(part.data, part.size, world(r), calls_->calls.user_data));
}

void CallbackExchange::take(int r, Part part) {
  if (part.size == 0) return;
  CallbackThreads::Inside inside(calls_->threads, CallbackThreads::kWork);
  check("receive", calls_->calls.receive(part.data, part.size, world(r), calls_->calls.user_data));
}

bool CallbackExchange::meets_pairs() const { return calls_->calls.send && calls_->calls.receive; }

void CallbackExchange::pair(const Intent& intent, int peer, Part send, Part receive) {
  enter(intent);
  Intent& theirs = intents_[static_cast<size_t>(peer)];
  swap_with(peer, {&intent_, sizeof intent_}, {&theirs, sizeof theirs});
  check_intent(peer, theirs);
  for (size_t first = 0; first < intent.bytes; first += kMostPart) {
    const size_t n = std::min(kMostPart, intent.bytes - first);
    if (send.size != 0) give(peer, {static_cast<std::byte*>(send.data) + first, n});
    if (receive.size != 0) take(peer, {static_cast<std::byte*>(receive.data) + first, n});
  }
}

const CallbackThreads* CallbackExchange::callback_threads() const { return &calls_->threads; }

std::unique_ptr<Exchange> CallbackExchange::split(const std::string&,
                                                  const std::vector<int>& members,
                                                  const std::string& group) {
  return std::make_unique<CallbackExchange>(calls_, place().subset(members, group));
}

void CallbackExchange::watch(const Intent& intent) {
  intent_ = intent;
  check_abort();
}

void CallbackExchange::check(const char* callback, ds_status status) {
  check_abort();
  if (status != DS_OK)
    fail(fmt::format("the callback {} has returned {}", callback, static_cast<int>(status)));
}

void CallbackExchange::check_abort() const {
  std::lock_guard lock(calls_->mutex);
  if (!calls_->ended.empty()) throw Error(DS_ERROR_COMM, calls_->ended);
}

void CallbackExchange::abort(std::string_view reason) {
  if (getpid() != calls_->process) return;
  std::string text(reason.empty() ? "no reason given" : reason);
  {
    std::lock_guard lock(calls_->mutex);
    if (!calls_->ended.empty()) return;
    calls_->ended = text;
  }
  if (!calls_->calls.abort) return;
  CallbackThreads::Inside inside(calls_->threads, CallbackThreads::kEnd);
  calls_->calls.abort(text.c_str(), calls_->calls.user_data);
}

void CallbackExchange::drop(std::string_view reason) { abort(reason); }

void CallbackExchange::fail(const std::string& reason, int about) {
  check_abort();  // what ended the group first is the cause
  std::string message = fmt::format("{}: {}", here(intent_), reason);
  abort(message);
  throw Error(DS_ERROR_COMM, message, {.rank = about});
}

std::unique_ptr<Communicator> make_called(const ds_comm_callbacks& callbacks, int rank, int size) {
  require(size <= kMostLinked, "size must be 1 to {}, got {}", kMostLinked, size);
  auto calls = std::make_shared<CallerCollectives>(callbacks, rank, size);
  auto out = std::make_unique<Communicator>(std::make_unique<CallbackExchange>(calls));
  calls->owned = true;
  return out;
}

}  // namespace ds
