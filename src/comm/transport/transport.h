#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "comm/communicator.h"
#include "comm/intent.h"
#include "ds_plugin.h"

namespace ds {

inline constexpr size_t kSlotBytes = size_t{2} << 20;  // staging of one rank: two halves used in turn
inline constexpr uint32_t kSegmentVersion = 1;

size_t sum_size(DType wire);  // bytes of one element of a sum: 4, or 8 for f64

// One rank's part of the shared segment. phase counts the exchanges it has published and is the word others
// sleep on.
struct alignas(4096) RankBlock {
  std::atomic<uint32_t> phase;
  std::atomic<uint32_t> progress;
  std::atomic<uint32_t> sleepers;  // ranks asleep on phase
  std::atomic<uint32_t> left;      // the rank has destroyed its communicator
  Intent intents[2];               // by parity of the exchange
};

// Memory shared by all ranks of a group; begins as zero bytes.
struct SharedSegment {
  std::atomic<uint32_t> aborted;  // 1 + rank that aborted first
  std::atomic<uint32_t> reason_ready;
  char reason[496];
  RankBlock ranks[1];  // size of them, then the slots

  static size_t bytes(int size) {
    return sizeof(SharedSegment) + static_cast<size_t>(size - 1) * sizeof(RankBlock) +
           static_cast<size_t>(size) * kSlotBytes;
  }
  std::byte* slot(int size, int rank) {
    return reinterpret_cast<std::byte*>(this) + sizeof(SharedSegment) +
           static_cast<size_t>(size - 1) * sizeof(RankBlock) + static_cast<size_t>(rank) * kSlotBytes;
  }
};

// How a group shares its segment and learns that a rank is gone.
class Sharing {
 public:
  virtual ~Sharing() = default;  // gives the segment up
  virtual SharedSegment& segment() = 0;
  virtual bool alive(int rank) const = 0;  // false: the process of that rank is dead
};

std::unique_ptr<Communicator> make_loopback();
// The collectives over a shared segment; joins by a first exchange.
std::unique_ptr<Communicator> make_group(std::unique_ptr<Sharing> sharing, const CommOptions& options);
std::unique_ptr<Communicator> make_threads(const std::string& name, const CommOptions& options);
std::unique_ptr<Communicator> make_shm(const std::string& name, const CommOptions& options);
// Ranks on any hosts, over the transport of a plugin.
std::unique_ptr<Communicator> make_linked(const ds_plugin_transport_table& transport,
                                          const CommOptions& options);

}  // namespace ds
