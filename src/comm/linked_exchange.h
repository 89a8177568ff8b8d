#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "comm/communicator.h"
#include "comm/exchange.h"
#include "comm/greeting.h"
#include "comm/message_stage.h"
#include "comm/patience.h"
#include "comm/transport/transport.h"

namespace ds {

// This rank's connection to the group that it joined over a plugin. All groups that are split from
// that group share the connection.
struct Link {
  Link(const ds_plugin_transport_table& table, const std::string& address,
       const CommOptions& options);
  ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  const ds_plugin_transport_table& transport;
  ds_plugin_link* link = nullptr;
  const int rank, size;
  // The process that joined. A forked child does not belong to the group.
  const int process;
  // The current heartbeat of this rank.
  Sign shown;
  // Time of the last heartbeat that was sent.
  int64_t beaten_ns = 0;
  // Guards `ended`.
  std::mutex mutex;
  // Why this rank ended the group, or "" if it has not ended it.
  std::string ended;
};

// An exchange of messages over the transport of a plugin, between all of a link's ranks or some of
// them, in any order. Every collective begins with a swap of digests of the intents, followed by a
// swap for each round. Parts that are only read by see() are received into a stage of this rank.
class LinkedExchange final : public Exchange {
 public:
  // `place` has the link's ranks that form this group; all of the link's ranks are the world.
  LinkedExchange(std::shared_ptr<Link> link, Membership place, const CommOptions& options);

  int local_rank() const override { return neighbours_.rank; }
  int local_size() const override { return neighbours_.size; }
  void begin(const Intent& intent) override;
  size_t prepare(Round kind, size_t bytes) override;
  void round(const Part* sends, const Part* receives) override;
  const std::byte* see(int r, size_t offset, size_t bytes) override;
  void end() override {}
  void pair(const Intent& intent, int peer, Part send, Part receive) override;
  void watch(const Intent& intent) override;
  void drop(std::string_view reason) override;
  [[noreturn]] void fail(const std::string& reason, int about = -1) override;
  void abort(std::string_view reason) override;
  void tick() override;
  void set_timeout(int64_t ms) override { timeout_ms_ = ms; }
  int64_t timeout_ms() const override { return timeout_ms_; }
  int64_t overhead_bytes() const override { return stage_.bytes(); }
  std::unique_ptr<Exchange> split(const std::string& name, const std::vector<int>& members,
                                  const std::string& group) override;

 private:
  // Swaps parts: sends[r] goes to rank r and receives[r] comes from it. `only` is the one rank to
  // swap with; -1: all.
  void swap(const Part* sends, const Part* receives, int only);
  // Swaps digests of intents with the rank `only` (-1: with all) and fails if they differ.
  void agree(int only);
  // Swaps intents with the ranks whose digests differ from this rank's, and fails with a message
  // that names both calls.
  [[noreturn]] void disagree(const std::vector<int>& others);
  // Polls until all parts of the swap have been moved, and checks on the ranks that are late.
  void wait();
  // Moves parts of the swap. Returns whether all have been sent and received.
  bool poll();
  // Checks on a rank whose part has not arrived. Throws if the rank has left or makes no progress.
  void look_at(int peer, int64_t now);
  // Checks whether bytes have been moved to or from a rank since the last check. If so, counts this
  // as progress of both ranks.
  void see_moved(int peer);
  // Returns "; " and what the transport reports about a connection that does not deliver, or "".
  std::string stalled(int peer) const;
  // Reports the rank to the launcher and fails, because its part will not arrive.
  [[noreturn]] void lose(int peer, const std::string& reason);
  // Sends a heartbeat if the last heartbeat was sent long enough ago.
  void beat(int64_t now);
  // Compares the builds of all ranks, and finds the ranks of this host.
  void greet();
  void check_abort();
  // Returns the index of rank r in the link's arrays, which is its number in the world.
  size_t seat(int r) const { return static_cast<size_t>(world(r)); }

  std::shared_ptr<Link> link_;
  Neighbours neighbours_;
  // Number of polls before this rank yields its core.
  int spins_ = 0;
  int64_t timeout_ms_;
  Intent intent_;
  // Digests of the intents of this group's ranks.
  std::vector<uint64_t> digests_;
  MessageStage stage_;
  // These arrays have an entry for each rank of the link.
  std::vector<Part> sends_, receives_;
  std::vector<uint8_t> arrived_;
  std::vector<uint64_t> signs_, moved_;
  std::vector<Patience> patience_;
  // When watch() first saw that a rank had left; 0: the rank has not left.
  std::vector<int64_t> left_ns_;
};

}  // namespace ds
