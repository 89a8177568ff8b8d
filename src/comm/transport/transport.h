#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "comm/communicator.h"
#include "comm/intent.h"
#include "core/base/round.h"
#include "ds_plugin.h"

namespace ds {

inline constexpr size_t kSlotBytes = size_t{2}
                                     << 20;  // staging of one rank: two halves used in turn
// A half has at least a line of 64 bytes for each rank.
inline constexpr int kMostSharing = static_cast<int>(kSlotBytes / 2 / 64);

// A sign of life has 16 bits for a rank and for none.
inline constexpr int kMostLinked = 65535;

// What a rank gives another: an address of its process, or an offset in its half of the staging.
struct Offer {
  uint64_t where;
  uint64_t bytes;
};

// What one rank shows all others. phase counts the rounds it has published and is a word that
// others sleep on.
struct alignas(4096) RankBlock {
  std::atomic<uint32_t> phase;
  std::atomic<uint32_t> sleepers;  // ranks asleep on a word of this block
  std::atomic<uint32_t> left;      // the rank has destroyed its communicator
  std::atomic<int32_t> process;
  std::atomic<uint32_t>
      reads;  // 1 + whether it can read the memory of all others; 0: not known yet
  std::atomic<uint64_t> cookie, cookie_at;  // a value and where its process has it
  std::atomic<uint64_t> cores[16];          // that it may run on, a bit each; none: not known
  Intent intents[2];                        // by parity of the exchange
  Intent meeting;
  Offer met;
  // What this rank shows to its world, in the world's segment alone: Sign, and what it waits in, a
  // text.
  std::atomic<uint32_t> work, pulse, waits_for;  // 1 + rank of the world, 0: it does not wait
  std::atomic<uint64_t> doing[16];
};

// Memory shared by all ranks of a group; begins as zero bytes. Behind this head lie the blocks of
// all ranks, for each rank a table of a line for each other one, and the staging of each rank.
struct SharedSegment {
  std::atomic<uint32_t> aborted;  // 1 + rank of the world that aborted first
  std::atomic<uint32_t> reason_ready;
  char reason[496];
  RankBlock ranks[1];  // `size` of them

  // What a rank has for each other one.
  struct Line {
    Offer offers[2];                // by parity of the exchange
    std::atomic<uint32_t> meeting;  // steps of the meetings with it; a word to sleep on
  };

  static size_t table_bytes(int size) {
    return round_up(static_cast<size_t>(size) * sizeof(Line), 4096);
  }
  // Without the staging.
  static size_t head_bytes(int size) {
    return sizeof(SharedSegment) + static_cast<size_t>(size - 1) * sizeof(RankBlock) +
           static_cast<size_t>(size) * table_bytes(size);
  }
  static size_t bytes(int size) {
    return head_bytes(size) + static_cast<size_t>(size) * kSlotBytes;
  }

  Line* table(int size, int rank) {
    std::byte* tables = reinterpret_cast<std::byte*>(ranks + size);
    return reinterpret_cast<Line*>(tables + static_cast<size_t>(rank) * table_bytes(size));
  }
  std::byte* slot(int size, int rank) {
    return reinterpret_cast<std::byte*>(this) + head_bytes(size) +
           static_cast<size_t>(rank) * kSlotBytes;
  }
};

// How a group shares its segment and each other's memory, and learns that a rank is gone.
class Sharing {
 public:
  virtual ~Sharing() = default;  // gives the segment up
  virtual SharedSegment& segment() = 0;
  virtual bool alive(int rank) const = 0;  // false: the process of that rank is dead
  // Copies out of the memory of a rank's process. False: it cannot be read, or was withdrawn.
  virtual bool read(int rank, uint64_t from, void* to, size_t bytes) = 0;
  // The others can read or borrow this rank's memory no more; those that do so now have ended.
  virtual void withdraw(int /*rank*/) {}
  // Whether all are threads of one process; then they borrow from each other. False: it was
  // withdrawn.
  virtual bool one_process() const { return false; }
  virtual bool borrow(int /*rank*/) { return false; }
  virtual void give_back(int /*rank*/) {}
  virtual void await_returns(int /*rank*/) const {}
  // Another group of this kind; joins.
  virtual std::unique_ptr<Sharing> make(const std::string& name,
                                        const CommOptions& options) const = 0;
};

std::unique_ptr<Sharing> share_threads(const std::string& name, const CommOptions& options);
std::unique_ptr<Sharing> share_processes(const std::string& name, const CommOptions& options);

std::unique_ptr<Communicator> make_loopback();
std::unique_ptr<Communicator> make_shared(std::unique_ptr<Sharing> sharing,
                                          const CommOptions& options);
// Ranks on any hosts, over the transport of a plugin, which knows what an address is.
std::unique_ptr<Communicator> make_linked(const ds_plugin_transport_table& transport,
                                          const std::string& address, const CommOptions& options);

}  // namespace ds
