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

// Ranks that reach each other by the collectives of the caller: all that these callbacks have, or
// some of them. Every collective is a swap of intents, then a swap for each round.
class CallbackExchange final : public Exchange {
 public:
  // The ranks of the callbacks are the world; this meets them all.
  explicit CallbackExchange(std::shared_ptr<CallerCollectives> calls);
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
  void set_timeout(int64_t) override {}  // the time-outs are those of the callbacks
  int64_t overhead_bytes() const override { return stage_.bytes(); }
  std::unique_ptr<Exchange> split(const std::string& name, const std::vector<int>& members,
                                  const std::string& group) override;

 private:
  void greet();
  // Tries all_to_all with parts of unequal sizes, whose bytes are known.
  void try_swap();
  // Tries all_gather likewise.
  void try_gather();
  void swap(const Part* sends, const Part* receives);
  // Swaps with one rank after the other, which do so with this one at the same time.
  void swap_by_pairs(const Part* sends, const Part* receives);
  // The one with the lower number in the world sends first.
  void swap_with(int r, Part give, Part take);
  void give(int r, Part part);
  void take(int r, Part part);
  // Begins what all ranks or two do; refuses it in a forked child, and where the group has ended.
  void enter(const Intent& intent);
  void check_intent(int r, const Intent& theirs);
  void check_abort() const;
  // Fails where a callback has returned an error.
  void check(const char* callback, ds_status status);

  std::shared_ptr<CallerCollectives> calls_;
  Neighbours neighbours_;
  bool gathers_ = false;  // rounds may go by all_gather
  Intent intent_;
  std::vector<Intent> intents_;  // of each rank here
  MessageStage stage_;
  std::vector<const void*> ins_;  // these four are the arguments of all_to_all
  std::vector<void*> outs_;
  std::vector<size_t> in_sizes_, out_sizes_;
};

// Collective. The callbacks are copied; user_data is the communicator's when this has returned.
std::unique_ptr<Communicator> make_called(const ds_comm_callbacks& callbacks, int rank, int size);

}  // namespace ds
