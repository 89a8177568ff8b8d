#include <span>
#include <string_view>

#include "comm/collectives/collective.h"

namespace ds {

// Every rank sends its bytes to every other rank. Bytes received: (W-1) * bytes.
void Communicator::all_gather(const void* in, void* out, size_t bytes, std::string_view label) {
  perform({"all_gather", "", bytes, label}, [&] {
    Rounds(*exchange_).gather_blocks(in, out, Blocks(size_, bytes));
    return bytes * static_cast<size_t>(size_ - 1);
  });
}

void Communicator::all_gather_v(const void* in, void* out, std::span<const size_t> bytes,
                                std::string_view label) {
  Blocks blocks(size_, bytes, "bytes");
  perform({"all_gather_v", "", blocks.total(), label, blocks.hash()}, [&] {
    Rounds(*exchange_).gather_blocks(in, out, blocks);
    return blocks.total() - blocks.size(static_cast<size_t>(rank_));
  });
}

// A chunk covers the same range of every block. A shorter block contributes its rest, or nothing,
// so that all ranks run the same number of rounds.
void Rounds::gather_blocks(const void* in, void* out, const Blocks& blocks) {
  auto me = static_cast<size_t>(rank_);
  auto swap = [&](size_t r, size_t first, size_t most) -> GiveTake {
    return {to_send(at(in, first), blocks.overlap(me, first, most)),
            {at(out, blocks.begin(r) + first), blocks.overlap(r, first, most)}};
  };
  in_rounds(exchange_, Round::same, blocks.most(), swap);
}

}  // namespace ds
