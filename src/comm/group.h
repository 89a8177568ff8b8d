#pragma once
#include <algorithm>
#include <cstring>
#include <string>

#include "comm/transport/transport.h"

namespace ds {

// Collectives of ranks that share a segment. Data goes through the slots in chunks: a rank writes its chunk
// into one half of its slot, publishes the exchange, waits for the others and reads theirs. A half is written
// again two exchanges later, when everyone has published the exchange between and so has finished reading.
class Group final : public Communicator {
 public:
  Group(std::unique_ptr<Sharing> sharing, const CommOptions& options);
  ~Group() override;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int64_t overhead_bytes() const override;
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
  static constexpr size_t kHalf = kSlotBytes / 2;

  // Begins a collective: what it is, for the check of the first exchange and for messages. `detail` is what
  // ranks must agree on besides: the wire type, the root.
  void begin(std::string_view operation, std::string_view detail, uint64_t bytes, std::string_view label);
  // This rank's half for the next exchange, and any rank's half of the last one.
  std::byte* mine();
  const std::byte* theirs(int rank) const;
  // Publishes this rank's half and waits until every rank has published.
  void exchange();
  // Calls body(offset, bytes) for chunks of at most `most` bytes; at least once.
  template <typename Body>
  static void chunks(size_t bytes, size_t most, Body body) {
    size_t offset = 0;
    do {
      size_t part = std::min(most, bytes - offset);
      body(offset, part);
      offset += part;
    } while (offset < bytes);
  }
  static void copy(void* to, const void* from, size_t bytes) {
    if (bytes != 0) std::memcpy(to, from, bytes);  // of no bytes, either pointer may be null
  }

  // How long a peer has stood still, by this rank's own steps: time in which this rank did not run either
  // (a suspended job) does not count.
  struct Patience {
    uint32_t progress = 0;
    int64_t looked_ns = 0;
    int64_t waited_ns = 0;
  };

  void wait_for(int peer, uint32_t phase);
  // "" or why the peer cannot come any more.
  std::string missing(int peer, Patience& patience);
  void compare_intents();
  [[noreturn]] void fail(const std::string& reason);
  void check_abort();

  std::unique_ptr<Sharing> sharing_;
  SharedSegment& segment_;
  int rank_, size_;
  int process_;  // that joined
  int64_t timeout_ms_;
  int spins_;
  uint32_t phase_ = 0;
  uint64_t sequence_ = 0;
  bool first_ = true;  // no exchange of this collective yet
  bool joined_ = false;
  Intent intent_;
};

}  // namespace ds
