#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "comm/communicator.h"
#include "comm/exchange.h"
#include "comm/greeting.h"
#include "comm/message_stage.h"
#include "core/base/callback_threads.h"
#include "ds.h"

namespace ds {

class CallerCollectives;

// An exchange by the callbacks of the caller, between all ranks of the callbacks or some of them.
// Every collective is a swap of intents, followed by a swap for each round.
class CallbackExchange final : public Exchange {
 public:
  // Creates the world, the group of all ranks of the callbacks. Collective.
  explicit CallbackExchange(std::shared_ptr<CallerCollectives> calls);
  // Creates a group of some of these ranks. Collective among them.
  CallbackExchange(std::shared_ptr<CallerCollectives> calls, Membership place);

  int local_rank() const override { return neighbours_.rank; }
  int local_size() const override { return neighbours_.size; }
  void begin(const Intent& intent) override;
  size_t prepare(Round kind, size_t bytes) override;
  void round(const Part* sends, const Part* receives) override;
  const std::byte* see(int r, size_t offset, size_t bytes) override;
  void end() override {}
  bool meets_pairs() const override;
  void pair(const Intent& intent, int peer, Part send, Part receive) override;
  const CallbackThreads* callback_threads() const override;
  void watch(const Intent& intent) override;
  void drop(std::string_view reason) override;
  [[noreturn]] void fail(const std::string& reason, int about = -1) override;
  void abort(std::string_view reason) override;
  void tick() override {}
  // Does nothing: only the callbacks themselves can have time-outs.
  void set_timeout(int64_t) override {}
  int64_t timeout_ms() const override { return 0; }
  int64_t overhead_bytes() const override { return stage_.bytes(); }
  std::unique_ptr<Exchange> split(const std::string& name, const std::vector<int>& members,
                                  const std::string& group) override;

 private:
  void greet();
  // Tests all_to_all with parts of unequal sizes and known bytes, and fails if other bytes arrive.
  void try_swap();
  // Tests all_gather in the same way as try_swap() tests all_to_all.
  void try_gather();
  // Sends sends[r] to rank r and receives receives[r] from it, by the callback that fits (see the
  // essay in callback_exchange.cpp).
  void swap(const Part* sends, const Part* receives);
  // Swaps with one rank after the other, in steps in which both ranks of a pair swap with each
  // other.
  void swap_by_pairs(const Part* sends, const Part* receives);
  // Swaps with one rank. The rank with the lower number in the world sends first.
  void swap_with(int r, Part give, Part take);
  void give(int r, Part part);
  void take(int r, Part part);
  // Begins an operation of all ranks or of two. Fails in a forked child, and if the group has
  // ended.
  void enter(const Intent& intent);
  // Fails if rank r's intent differs from this rank's.
  void check_intent(int r, const Intent& theirs);
  void check_abort() const;
  // Fails if the group has ended or a callback has returned an error.
  void check(const char* callback, ds_status status);

  std::shared_ptr<CallerCollectives> calls_;
  Neighbours neighbours_;
  // Whether rounds may use all_gather.
  bool gathers_ = false;
  Intent intent_;
  // The last intent of each rank.
  std::vector<Intent> intents_;
  MessageStage stage_;
  // The arguments of the callback all_to_all.
  std::vector<const void*> ins_;
  std::vector<void*> outs_;
  std::vector<size_t> in_sizes_, out_sizes_;
};

// Creates a communicator over callbacks. Collective. The callbacks are copied. When this function
// returns, the communicator owns user_data; if it throws, the caller still does.
std::unique_ptr<Communicator> make_called(const ds_comm_callbacks& callbacks, int rank, int size);

}  // namespace ds
