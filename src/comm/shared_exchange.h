#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "comm/communicator.h"
#include "comm/exchange.h"
#include "comm/patience.h"
#include "comm/transport/transport.h"

namespace ds {

// Ranks that share a segment: small parts go through it, large ones are read out of the process
// that has them. How, and why that is safe, stands at the beginning of shared_exchange.cpp; waiting
// and ending are in shared_wait.cpp.
class SharedExchange final : public Exchange {
 public:
  // `around`: of the groups that this one is a part of, the world first; their aborts end this one
  // too.
  SharedExchange(std::unique_ptr<Sharing> sharing, Membership place, const CommOptions& options,
                 std::vector<std::shared_ptr<Sharing>> around = {});
  ~SharedExchange() override;

  void begin(const Intent& intent) override;
  size_t prepare(Round kind, size_t bytes) override;
  void round(const Part* sends, const Part* receives) override;
  const std::byte* see(int r, size_t offset, size_t bytes) override;
  size_t piece_bytes() const override;
  void end() override;
  void pair(const Intent& intent, int peer, Part send, Part receive) override;
  void watch(const Intent& intent) override;
  void drop(std::string_view reason) override;
  [[noreturn]] void fail(const std::string& reason, int about = -1) override;
  void abort(std::string_view reason) override;
  void tick() override;
  void set_timeout(int64_t ms) override { timeout_ms_ = ms; }
  int64_t overhead_bytes() const override;
  bool one_process() const override { return sharing_->one_process(); }
  void borrow() override;
  void give_back() noexcept override;
  void await_returns() const noexcept override { sharing_->await_returns(rank()); }
  bool reads_directly() const override { return can_read_; }
  std::unique_ptr<Exchange> split(const std::string& name, const std::vector<int>& members,
                                  const std::string& group) override;

 private:
  static constexpr size_t kHalf = kSlotBytes / 2;

  // The half of a rank's slot that belongs to a round.
  std::byte* half(int rank, uint32_t phase) const {
    return segment_.slot(size(), rank) + (phase & 1) * kHalf;
  }
  void join(const CommOptions& options);
  // Whether ranks are crowded, and how they wait, with so many cores for all of them.
  void set_cores(int cores);
  void leave();
  void offer(const Part* sends);
  // Returns the peer's offer to this rank in the last round.
  const Offer& offered(int peer) const {
    return segment_.table(size(), peer)[rank()].offers[phase_ & 1];
  }
  void publish();
  void take(int peer, const Part& receive);
  // The segment of this group or of one around it that has been ended; null: none.
  SharedSegment* ended() const;
  // Copies `bytes` at `offset` of what a peer gave in the last round.
  void fetch(int peer, size_t offset, void* to, size_t bytes);
  void read(int peer, uint64_t from, void* to, size_t bytes);
  // One step of a meeting: returns when the peer has taken it too.
  void step_with(int peer);
  // Waits until the word of the peer's block has reached `count`. `meeting`: the peer may not be in
  // a collective meanwhile.
  void wait_for(int peer, const std::atomic<uint32_t>& word, uint32_t count, bool meeting);
  // "" or why the peer cannot come any more. `differs`: it is there, in another collective.
  std::string missing(int peer, bool meeting, Patience& patience, bool& differs);
  // Fails because of what that rank is missing.
  [[noreturn]] void lose(int peer, const std::string& reason);
  // 0: not known to a part of the world.
  int world_size() const { return around_.empty() ? size() : 0; }
  void compare(int peer, const Intent& theirs);
  void check_abort();

  std::shared_ptr<Sharing> sharing_;
  std::vector<std::shared_ptr<Sharing>> around_;
  SharedSegment& segment_;
  RankBlock& own_;
  SharedSegment& world_;
  RankBlock& shown_;  // this rank's in the world
  int process_;       // that joined
  int64_t timeout_ms_, join_ms_;
  bool crowded_;        // more ranks than cores
  int spins_, yields_;  // looks at a word before this rank sleeps on it
  uint32_t phase_ = 0;
  std::vector<uint32_t> steps_;  // of meetings, with each rank
  const std::vector<Part> none_;
  bool first_ = true;  // no round of this collective yet
  bool joined_ = false;
  bool can_read_ = false;  // every rank all others
  bool direct_ = false;    // this collective is read where its bytes lie
  size_t whole_ =
      0;  // bytes that a rank takes, at most: of one, or where it gathers from a crowd, of all
  Intent intent_;
  std::vector<Patience> watched_;  // with each rank, in watch()
};

}  // namespace ds
