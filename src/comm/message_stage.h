#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "comm/exchange.h"

namespace ds {

// The largest message, in bytes.
inline constexpr size_t kMostPart = size_t{256} << 20;

// Memory for the parts of a sum, which are received as messages from each rank and for which the
// caller has no destination: at most 1 MiB for each rank and 64 MiB for all. The system allocates
// its pages when they are first used.
class MessageStage {
 public:
  explicit MessageStage(int ranks)
      : ranks_(static_cast<size_t>(ranks)),
        part_(std::max<size_t>(std::min(kMostStagePart, kMostStage / ranks_) / 64, 1) * 64),
        memory_(std::make_unique_for_overwrite<std::byte[]>(ranks_ * part_)),
        places_(ranks_) {}

  size_t part_bytes() const { return part_; }
  int64_t bytes() const { return static_cast<int64_t>(ranks_ * part_); }
  std::byte* of(int rank) const { return memory_.get() + static_cast<size_t>(rank) * part_; }
  // Returns a copy of `receives` in which parts of other ranks that have no destination get one in
  // this stage. The copy is valid until the next call.
  const Part* places(int own, const Part* receives) {
    for (size_t r = 0; r < ranks_; ++r) {
      places_[r] = receives[r];
      if (!places_[r].data && static_cast<int>(r) != own) places_[r].data = of(static_cast<int>(r));
    }
    return places_.data();
  }

 private:
  static constexpr size_t kMostStagePart = size_t{1} << 20, kMostStage = size_t{64} << 20;

  const size_t ranks_, part_;
  const std::unique_ptr<std::byte[]> memory_;
  std::vector<Part> places_;
};

}  // namespace ds
