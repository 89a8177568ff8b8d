#pragma once
#include <mutex>
#include <string>
#include <vector>

#include "comm/exchange.h"
#include "comm/transport/transport.h"

namespace ds {

// A rank's place in the group of a plugin, shared by the groups that were split from it.
struct Link {
  Link(const ds_plugin_transport_table& table, const std::string& address, const CommOptions& options);
  ~Link() { transport.close(link); }
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  const ds_plugin_transport_table& transport;
  ds_plugin_link* link = nullptr;
  const int rank, size;
  int64_t beaten_ns = 0;
  std::mutex mutex;   // of ended
  std::string ended;  // why this rank ended the group
};

// Ranks that send each other messages, over the transport of a plugin: all of a link's ranks, or some of
// them, in any order. Every collective is a swap of intents, then a swap for each round. Parts that are to be
// seen come into a stage of this rank.
class LinkedExchange final : public Exchange {
 public:
  // members[r]: the rank of the link that is rank r here.
  LinkedExchange(std::shared_ptr<Link> link, std::vector<int> members, int rank, const CommOptions& options);

  int local_rank() const override { return local_rank_; }
  int local_size() const override { return local_size_; }
  void begin(const Intent& intent) override;
  void prepare(size_t) override {}
  size_t part_bytes(Round kind) const override;
  void round(const Part* sends, const Part* receives) override;
  const std::byte* see(int r, size_t offset, size_t bytes) override;
  void end() override {}
  void pair(const Intent& intent, int peer, Part send, Part receive) override;
  void drop(std::string_view reason) override;
  [[noreturn]] void fail(const std::string& reason) override;
  void abort(std::string_view reason) override;
  void tick() override;
  void set_timeout(int64_t ms) override { timeout_ms_ = ms; }
  int64_t overhead_bytes() const override { return static_cast<int64_t>(stage_.size()); }
  std::unique_ptr<Exchange> split(const std::string& name, const std::vector<int>& members) override;

 private:
  // Entry r of these arrays is what goes to or comes from rank r; `only`: with no other rank, -1: with all.
  void swap(const Part* sends, const Part* receives, int only);
  // Swaps intents and compares them.
  void agree(int only);
  void wait();
  // Whether a rank whose part has not come stands still; throws when it has gone.
  void look_at(int peer);
  void find_neighbours();
  void check_abort();
  size_t place(int r) const { return static_cast<size_t>(members_[static_cast<size_t>(r)]); }

  struct Patience {
    uint64_t beats = 0;
    int64_t waited_ns = 0;
  };

  std::shared_ptr<Link> link_;
  const std::vector<int> members_;
  int local_rank_ = 0, local_size_ = 1;
  int64_t timeout_ms_;
  Intent intent_;
  std::vector<Intent> intents_;         // of each rank here
  std::vector<std::byte> stage_;        // kStagePart of each
  std::vector<Part> sends_, receives_;  // of each rank of the link, as are those below
  std::vector<uint8_t> arrived_;
  std::vector<uint64_t> beats_;
  std::vector<Patience> patience_;
  int64_t looked_ns_ = 0;
};

}  // namespace ds
