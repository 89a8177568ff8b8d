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

// An exchange between ranks that share a segment: small parts go through the segment, and large
// parts are read directly from the sender's memory. The essay at the beginning of
// shared_exchange.cpp explains how, and why that is safe; shared_wait.cpp implements waiting and
// ending.
class SharedExchange final : public Exchange {
 public:
  // `around` has the groups that this group was split from, the world first. An abort of one of
  // them ends this group, too.
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
  int64_t timeout_ms() const override { return timeout_ms_; }
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

  // Returns the half of a rank's slot that belongs to a round.
  std::byte* half(int rank, uint32_t phase) const {
    return segment_.slot(size(), rank) + (phase & 1) * kHalf;
  }
  // Performs the first two rounds, which find out whether ranks can read each other's memory and
  // how many cores they have.
  void join(const CommOptions& options);
  // Sets whether ranks are crowded (more ranks than cores) and how they wait. `cores` is the number
  // of cores that all ranks share.
  void set_cores(int cores);
  // Publishes that this rank has destroyed its communicator.
  void leave();
  // Stages this rank's parts, or offers their addresses, for the next round.
  void offer(const Part* sends);
  // Returns the peer's offer to this rank in the last round.
  const Offer& offered(int peer) const {
    return segment_.table(size(), peer)[rank()].offers[phase_ & 1];
  }
  // Begins the next round and makes this rank's offers visible.
  void publish();
  // Waits for the peer's part of this round, checks its size, and copies it unless it is only read
  // by see().
  void take(int peer, const Part& receive);
  // Returns the segment of this group if the group has ended, otherwise the segment of a group
  // around it that has ended; null if all of these groups continue.
  SharedSegment* ended() const;
  // Copies `bytes` bytes, from `offset` on, of the part that the peer sent to this rank in the last
  // round.
  void fetch(int peer, size_t offset, void* to, size_t bytes);
  // Copies from the memory of the peer's process.
  void read(int peer, uint64_t from, void* to, size_t bytes);
  // Performs one step of a send or receive: returns when the peer has reached the same step.
  void step_with(int peer);
  // Waits until a word that the peer publishes has reached `count`. With `meeting` (in a send or a
  // receive), fails if the peer is in a collective.
  void wait_for(int peer, const std::atomic<uint32_t>& word, uint32_t count, bool meeting);
  // Returns "", or why the peer will not reach the point that is waited for. Sets `differs` if the
  // peer is alive, but in another operation.
  std::string missing(int peer, bool meeting, Patience& patience, bool& differs);
  // Reports the rank to the launcher and fails, because it is missing.
  [[noreturn]] void lose(int peer, const std::string& reason);
  // Returns the size of the world, or 0 in a group that was split from it, which does not know the
  // size.
  int world_size() const { return around_.empty() ? size() : 0; }
  void compare(int peer, const Intent& theirs);
  void check_abort();

  std::shared_ptr<Sharing> sharing_;
  std::vector<std::shared_ptr<Sharing>> around_;
  SharedSegment& segment_;
  RankBlock& own_;
  SharedSegment& world_;
  // This rank's block in the world's segment.
  RankBlock& shown_;
  // The process that joined.
  int process_;
  int64_t timeout_ms_, join_ms_;
  // Whether there are more ranks than cores.
  bool crowded_;
  // How often this rank reads a word while it spins, and while it yields, before it sleeps on the
  // word.
  int spins_, yields_;
  uint32_t phase_ = 0;
  // Number of steps of sends and receives with each rank.
  std::vector<uint32_t> steps_;
  const std::vector<Part> none_;
  // Whether this collective has had no round yet.
  bool first_ = true;
  bool joined_ = false;
  // Whether every rank can read the memory of all others.
  bool can_read_ = false;
  // Whether this collective reads parts directly from the senders' memory.
  bool direct_ = false;
  // The largest number of bytes that this rank receives in the collective from one rank, or from
  // all ranks in a large gather with more ranks than cores.
  size_t whole_ = 0;
  Intent intent_;
  // State of watch() for each rank.
  std::vector<Patience> watched_;
};

}  // namespace ds
