// Problem. An application that has its own process groups (torch's, oneCCL's, a scheduler's) passes
// their collectives to libds as callbacks, and expects the results that every other transport
// gives.
//
// Invariant. Callbacks only move bytes. All ranks make the same sequence of calls, which they have
// compared beforehand (begin()), and choose the same callback for a round. They choose all_gather
// if the caller passes it and if, in this round, each rank sends one part to all ranks and receives
// parts of equal sizes above 0 into consecutive memory; otherwise they choose all_to_all. These
// conditions follow from the arguments that the ranks have compared.
//
// Algorithm. The ranks of the callbacks swap by all_gather and all_to_all. A group that was split
// from them cannot, since the collectives of the caller need all ranks; its ranks swap in pairs. In
// step s of n, rank r of n swaps with rank (s - r) mod n, whose partner in this step is r, and the
// rank with the lower number in the world sends first. Ranks never wait in a cycle: a rank waits
// only for a rank that is in an earlier step. libds cannot observe a rank that a callback waits
// for, so this exchange has neither time-outs nor heartbeats.
//
// Cost. In addition to its rounds, each collective swaps an intent (sizeof(Intent) bytes) with
// every rank. A rank keeps the stage and some 300 bytes for each other rank. Only a rank's own part
// is copied here.
//
// Source. docs/adr/0010 describes how the work is divided between collectives and transports;
// docs/adr/0069 describes the callbacks.
#include "comm/callback_exchange.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>

#include "comm/build_name.h"
#include "comm/transport/transport.h"
#include "core/base/error.h"
#include "core/base/process_mark.h"

namespace ds {

// The callbacks, shared by a comm and all groups that were split from it.
class CallerCollectives {
 public:
  CallerCollectives(const ds_comm_callbacks& callbacks, int rank, int size)
      : calls(callbacks), rank(rank), size(size), process(this_process().number) {}
  ~CallerCollectives() {
    if (owned && calls.destroy && this_process().number == process) calls.destroy(calls.user_data);
  }
  CallerCollectives(const CallerCollectives&) = delete;
  CallerCollectives& operator=(const CallerCollectives&) = delete;

  const ds_comm_callbacks calls;
  const int rank, size;
  // The process that created the comm. A forked child does not belong to the group.
  const int process;
  // Whether this object destroys user_data.
  bool owned = false;
  CallbackThreads threads;
  // Guards `ended`.
  mutable std::mutex mutex;
  // Why this rank ended the group, or "" if it has not ended it.
  std::string ended;
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

// Ranks introduce themselves by all_to_all, the one callback that every world has, or in pairs if
// the group was split. The application may have connected its callbacks wrongly, so this also
// checks that the data received as rank r's is from rank r, and that either all ranks or none pass
// all_gather, and likewise send and receive.
void CallbackExchange::greet() {
  struct Introduction {
    Greeting greeting;
    // Rank and size in the world.
    int32_t rank, size;
    // Whether the caller passes these callbacks: 1 or 0.
    int32_t all_gather, pairs;
  };
  const Introduction own{Greeting::own(), world(rank()), calls_->size,
                         calls_->calls.all_gather ? 1 : 0, meets_pairs() ? 1 : 0};
  std::vector<Introduction> all(intents_.size());
  std::vector<Part> sends(all.size(), Part{const_cast<Introduction*>(&own), sizeof own}),
      receives(all.size());
  for (size_t r = 0; r < all.size(); ++r) receives[r] = {&all[r], sizeof own};
  intent_.set(0, "join", "", sizeof own, "");
  check_abort();
  swap(sends.data(), receives.data());
  std::vector<Greeting> greetings(all.size());
  for (size_t r = 0; r < all.size(); ++r) {
    const int wanted = world(static_cast<int>(r));
    greetings[r] = all[r].greeting;
    if (greetings[r].build.text[0] == '\0')
      fail(fmt::format("all_to_all has delivered nothing from rank {}", wanted));
    if (std::memcmp(&greetings[r].build, &own.greeting.build, sizeof(BuildName)) != 0) continue;
    if (all[r].rank != wanted || all[r].size != calls_->size) {
      fail(fmt::format("the data delivered in the place of rank {} of {} is from rank {} of {}",
                       wanted, calls_->size, all[r].rank, all[r].size));
    }
    auto check_callback = [&](const char* name, int32_t mine, int32_t theirs) {
      if (mine == theirs) return;
      fail(fmt::format(
          "rank {} passes {}, but rank {} does not: all ranks must pass the same callbacks",
          mine != 0 ? own.rank : wanted, name, mine != 0 ? wanted : own.rank));
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
  // These sizes are not multiples of a word, because texts and codes may have such sizes, too.
  for (const size_t bytes : {size_t{1}, size_t{7}, size_t{4099}}) {
    auto part_of = [&](int from) { return std::string(bytes, static_cast<char>(from * 7 + 1)); };
    std::string mine = part_of(rank()), all(bytes * intents_.size(), '\0');
    std::vector<Part> sends(intents_.size(), Part{mine.data(), bytes}), receives(intents_.size());
    for (size_t r = 0; r < receives.size(); ++r) receives[r] = {all.data() + r * bytes, bytes};
    swap(sends.data(), receives.data());
    for (int r = 0; r < size(); ++r) {
      if (all.compare(static_cast<size_t>(r) * bytes, bytes, part_of(r)) != 0)
        fail(fmt::format(
            "all_gather has delivered wrong bytes instead of the {} that rank {} has sent", bytes,
            r));
    }
  }
}

void CallbackExchange::try_swap() {
  // Returns the part that rank `from` sends to rank `to`, zero to eight bytes long.
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
          "all_to_all has delivered wrong bytes instead of those that rank {} has sent to rank {}",
          r, rank()));
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
  // All parts of a round together have at most 1 GiB, so that the caller can use 32-bit offsets.
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

// A split group swaps in pairs. In the world, a round is an all_gather if the caller passes that
// callback, this rank sends the same part to all ranks, and it receives parts of this size into
// consecutive memory; otherwise it is an all_to_all. All ranks choose the same callback, because
// these conditions follow from what they have compared.
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

// Both sides skip empty parts, since each knows the size.
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
  // An empty payload needs no call; a large one goes in parts of at most kMostPart bytes.
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
    fail(fmt::format("the callback {} returned status {}", callback, static_cast<int>(status)));
}

void CallbackExchange::check_abort() const {
  std::lock_guard lock(calls_->mutex);
  if (!calls_->ended.empty()) throw Error(DS_ERROR_COMM, calls_->ended);
}

void CallbackExchange::abort(std::string_view reason) {
  if (this_process().number != calls_->process) return;
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
  // The error that ended the group first is the cause.
  check_abort();
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
