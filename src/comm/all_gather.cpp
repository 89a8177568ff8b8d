#include "comm/blocks.h"

namespace ds {

// Every rank gives its bytes to every other one. Received: (W-1) * bytes.
void Communicator::all_gather(const void* in, void* out, size_t bytes, std::string_view label) {
  begin("all_gather", "", bytes, label);
  gather_blocks(in, out, Blocks(size_, bytes));
  count("all_gather", bytes * static_cast<size_t>(size_ - 1));
}

void Communicator::all_gather_v(const void* in, void* out, std::span<const size_t> bytes,
                                std::string_view label) {
  Blocks blocks(size_, bytes, "bytes");
  begin("all_gather_v", "", blocks.total(), label, blocks.hash());
  gather_blocks(in, out, blocks);
  count("all_gather_v", blocks.total() - blocks.size(static_cast<size_t>(rank_)));
}

void Communicator::gather_blocks(const void* in, void* out, const Blocks& blocks) {
  auto ranks = static_cast<size_t>(size_), me = static_cast<size_t>(rank_);
  exchange_->prepare(blocks.most());
  size_t most = exchange_->part_bytes(Round::same), first = 0;
  Parts parts;
  do {
    for (size_t r = 0; r < ranks; ++r) {
      parts.sends[r] = part(at(in, first), blocks.part(me, first, most));
      parts.receives[r] = {at(out, blocks.begin(r) + first), blocks.part(r, first, most)};
    }
    exchange_->round(parts.sends, parts.receives);
    copy(at(out, blocks.begin(me) + first), at(in, first), blocks.part(me, first, most), blocks.size(me));
    first += std::min(most, blocks.most());
  } while (first < blocks.most());
  exchange_->end();
}

}  // namespace ds
