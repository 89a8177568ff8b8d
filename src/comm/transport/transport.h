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

// Bytes of one rank's staging memory: two halves that are used in turn.
inline constexpr size_t kSlotBytes = size_t{2} << 20;
// At most this many ranks share a segment: each has a line of at least 64 bytes in a half.
inline constexpr int kMostSharing = static_cast<int>(kSlotBytes / 2 / 64);

// At most this many ranks use a plugin or callbacks: a heartbeat has 16 bits for a rank or none.
inline constexpr int kMostLinked = 65535;

// A part that a rank offers to another rank: an address in its process, or an offset in the half of
// its staging memory that this round uses.
struct Offer {
  uint64_t where;
  uint64_t bytes;
};

// The words that one rank publishes to all others. `phase` counts the rounds that the rank has
// published; other ranks sleep on it.
struct alignas(4096) RankBlock {
  std::atomic<uint32_t> phase;
  // Number of ranks that are asleep on a word that this rank publishes.
  std::atomic<uint32_t> sleepers;
  // 1 once the rank has destroyed its communicator.
  std::atomic<uint32_t> left;
  std::atomic<int32_t> process;
  // 2 if the rank can read the memory of all others, 1 if it cannot, 0 while that is not known.
  std::atomic<uint32_t> reads;
  // A random value, and its address in the rank's process.
  std::atomic<uint64_t> cookie, cookie_at;
  // The cores on which the rank may run, one bit each; all 0: not known.
  std::atomic<uint64_t> cores[16];
  // Intents, by parity of the round.
  Intent intents[2];
  // The intent of a send or receive, and the part that is offered in it.
  Intent meeting;
  Offer met;
  // The words that this rank shows to its world, used in the world's segment only: its Sign
  // (waits_for plus 1, so that 0 means that the rank does not wait), and the text of the operation
  // in which it waits.
  std::atomic<uint32_t> work, pulse, waits_for;
  std::atomic<uint64_t> doing[16];
};

// Memory that all ranks of a group share. Initially all bytes before the staging memory are zero.
// This header contains the first rank's block; the blocks of the other ranks follow, then for each
// rank a table with one line for each rank, then the staging memory of each rank.
struct SharedSegment {
  // 1 + the rank, by its number in the world, that aborted first; 0: no rank has.
  std::atomic<uint32_t> aborted;
  std::atomic<uint32_t> reason_ready;
  char reason[496];
  // The first of `size` blocks.
  RankBlock ranks[1];

  // The words that a rank publishes for one other rank.
  struct Line {
    // Offers, by parity of the round.
    Offer offers[2];
    // Number of steps of sends and receives with the other rank, which sleeps on this word.
    std::atomic<uint32_t> meeting;
  };

  static size_t table_bytes(int size) {
    return round_up(static_cast<size_t>(size) * sizeof(Line), 4096);
  }
  // Returns the bytes of the segment without the staging memory.
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

// The means by which the ranks of a group share a segment, read each other's memory, and learn that
// a rank has gone. The destructor releases the segment.
class Sharing {
 public:
  virtual ~Sharing() = default;
  virtual SharedSegment& segment() = 0;
  // Returns false if the process of that rank has died.
  virtual bool alive(int rank) const = 0;
  // Copies from the memory of a rank's process. Returns false if the memory cannot be read or was
  // withdrawn.
  virtual bool read(int rank, uint64_t from, void* to, size_t bytes) = 0;
  // Withdraws a rank's memory: other threads can no longer begin to read or borrow it. Returns when
  // no thread reads or borrows it any longer. Does nothing between processes.
  virtual void withdraw(int /*rank*/) {}
  // Returns whether all ranks are threads of one process; only then can they borrow each other's
  // memory. borrow() returns false if the memory was withdrawn.
  virtual bool one_process() const { return false; }
  virtual bool borrow(int /*rank*/) { return false; }
  virtual void give_back(int /*rank*/) {}
  virtual void await_returns(int /*rank*/) const {}
  // Creates or joins another group of the same transport.
  virtual std::unique_ptr<Sharing> make(const std::string& name,
                                        const CommOptions& options) const = 0;
};

std::unique_ptr<Sharing> share_threads(const std::string& name, const CommOptions& options);
std::unique_ptr<Sharing> share_processes(const std::string& name, const CommOptions& options);

std::unique_ptr<Communicator> make_loopback();
std::unique_ptr<Communicator> make_shared(std::unique_ptr<Sharing> sharing,
                                          const CommOptions& options);
// Creates the group of ranks on any hosts over the transport of a plugin, which defines the form of
// the address.
std::unique_ptr<Communicator> make_linked(const ds_plugin_transport_table& transport,
                                          const std::string& address, const CommOptions& options);

}  // namespace ds
