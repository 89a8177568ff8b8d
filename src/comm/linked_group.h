#pragma once
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "comm/transport/transport.h"

namespace ds {

// Collectives of ranks that send each other messages, over the transport of a plugin. Every collective is a
// swap of intents, then swaps in which each rank sends every other one part and receives one. Sums are made
// here, by tree_sum, so the bits are those of every other transport.
class LinkedGroup final : public Communicator {
 public:
  LinkedGroup(const ds_plugin_transport_table& transport, const CommOptions& options);
  ~LinkedGroup() override;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int local_rank() const override { return local_rank_; }
  int local_size() const override { return local_size_; }
  int64_t overhead_bytes() const override { return static_cast<int64_t>(stage_.size()); }
  void all_gather(const void* in, void* out, size_t bytes, std::string_view label) override;
  void reduce_scatter(const void* in, void* out, size_t count, DType wire, std::string_view label) override;
  void all_reduce(const void* in, void* out, size_t count, DType wire, std::string_view label) override;
  void all_to_all(const void* in, void* out, size_t bytes, std::string_view label) override;
  void broadcast(void* data, size_t bytes, int root, std::string_view label) override;
  void barrier(std::string_view label) override;
  void abort(std::string_view reason) override;
  void tick() override;
  void set_timeout(int64_t ms) override { timeout_ms_ = ms; }

 private:
  // Where a rank's part is.
  using Part = std::function<ds_plugin_part(size_t rank)>;

  void begin(std::string_view operation, std::string_view detail, uint64_t bytes, std::string_view label);
  // Sends send(r) to and receives receive(r) from every other rank.
  void swap(const Part& send, const Part& receive);
  void wait();
  // Whether a rank whose part has not come stands still; throws when it has gone.
  void look_at(size_t peer);
  // Sum over ranks of `count` elements of which rank r's are at stage + r * count, this rank's at `own`.
  void sum_stage(const std::byte* own, DType wire, std::byte* out, size_t count);
  void find_neighbours();
  void check_abort();
  [[noreturn]] void fail(const std::string& reason);

  struct Patience {
    uint64_t beats = 0;
    int64_t waited_ns = 0;
  };

  const ds_plugin_transport_table& transport_;
  ds_plugin_link* link_ = nullptr;
  const int rank_, size_;
  int local_rank_ = 0, local_size_ = 1;
  int64_t timeout_ms_;
  uint64_t sequence_ = 0;
  Intent intent_;
  std::vector<Intent> intents_;
  std::vector<std::byte> stage_;
  std::vector<ds_plugin_part> sends_, receives_;
  std::vector<uint8_t> arrived_;
  std::vector<uint64_t> beats_;
  std::vector<Patience> patience_;
  int64_t looked_ns_ = 0;
  int64_t beaten_ns_ = 0;
  std::mutex mutex_;   // of ended_
  std::string ended_;  // why this rank ended the group
};

}  // namespace ds
