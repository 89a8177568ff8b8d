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

// A rank's place in the group of a plugin, shared by the groups that were split from it.
struct Link {
  Link(const ds_plugin_transport_table& table, const std::string& address,
       const CommOptions& options);
  ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  const ds_plugin_transport_table& transport;
  ds_plugin_link* link = nullptr;
  const int rank, size;
  const int process;  // that joined; a forked child has no part in the group
  Sign shown;         // of this rank
  int64_t beaten_ns = 0;
  std::mutex mutex;   // of ended
  std::string ended;  // why this rank ended the group
};

// Ranks that send each other messages, over the transport of a plugin: all of a link's ranks, or
// some of them, in any order. Every collective is a swap of intents, then a swap for each round.
// Parts that are to be seen come into a stage of this rank.
class LinkedExchange final : public Exchange {
 public:
  // The link's ranks are the world.
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
  int64_t overhead_bytes() const override { return stage_.bytes(); }
  std::unique_ptr<Exchange> split(const std::string& name, const std::vector<int>& members,
                                  const std::string& group) override;

 private:
  // Entry r of these arrays is what goes to or comes from rank r; `only`: with no other rank, -1:
  // with all.
  void swap(const Part* sends, const Part* receives, int only);
  // Swaps digests of intents and compares them.
  void agree(int only);
  // Fails because the intents of these ranks are not this one's.
  [[noreturn]] void disagree(const std::vector<int>& others);
  void wait();
  // Moves parts; whether all have come and gone.
  bool poll();
  // Of a rank whose part has not come: throws when it has gone or stands still.
  void look_at(int peer, int64_t now);
  // Bytes that go to a rank or come from it are work, of both.
  void see_moved(int peer);
  std::string stalled(int peer) const;
  // Fails because that rank does not come any more.
  [[noreturn]] void lose(int peer, const std::string& reason);
  void beat(int64_t now);
  // Compares the builds of all ranks, and finds those of this host.
  void greet();
  void check_abort();
  size_t seat(int r) const { return static_cast<size_t>(world(r)); }

  std::shared_ptr<Link> link_;
  Neighbours neighbours_;
  int spins_ = 0;  // polls before this rank gives its core away
  int64_t timeout_ms_;
  Intent intent_;
  std::vector<uint64_t> digests_;  // of the intents of each rank here
  MessageStage stage_;
  std::vector<Part> sends_, receives_;  // of each rank of the link, as are those below
  std::vector<uint8_t> arrived_;
  std::vector<uint64_t> signs_, moved_;
  std::vector<Patience> patience_;
  std::vector<int64_t>
      left_ns_;  // since when a rank is seen to have left, in watch(); 0: it has not
};

}  // namespace ds
