#include "comm/blocks.h"

namespace ds {

// Every rank gives every other one its block. Received: (W-1) * bytes.
void Communicator::all_to_all(const void* in, void* out, size_t bytes, std::string_view label) {
  begin("all_to_all", "", bytes, label);
  Blocks blocks(size_, bytes);
  swap_blocks(in, blocks, out, blocks, bytes);
  count("all_to_all", bytes * static_cast<size_t>(size_ - 1));
}

// First all learn what all send, so that a difference is an error and the rounds are as many everywhere.
void Communicator::all_to_all_v(const void* in, std::span<const size_t> send, void* out,
                                std::span<const size_t> receive, std::string_view label) {
  Blocks from(size_, send, "send"), to(size_, receive, "receive");
  auto ranks = static_cast<size_t>(size_), me = static_cast<size_t>(rank_);
  begin("all_to_all_v", "", 0, label);
  std::vector<size_t> all(ranks * ranks);
  Parts parts;
  size_t row = ranks * sizeof(size_t);
  for (size_t r = 0; r < ranks; ++r) {
    parts.sends[r] = part(send.data(), row);
    parts.receives[r] = {&all[r * ranks], row};
  }
  exchange_->prepare(0);
  exchange_->round(parts.sends, parts.receives);
  std::copy(send.begin(), send.end(), &all[me * ranks]);
  for (size_t r = 0; r < ranks; ++r) {
    size_t sent = all[r * ranks + me];
    if (sent != receive[r]) {
      exchange_->fail(fmt::format("ranks differ: rank {} sends {} bytes to rank {}, which expects {}", r,
                                  sent, rank_, receive[r]));
    }
  }
  swap_blocks(in, from, out, to, *std::max_element(all.begin(), all.end()));
  count("all_to_all_v", to.total() - to.size(me));
}

void Communicator::swap_blocks(const void* in, const Blocks& from, void* out, const Blocks& to,
                               size_t longest) {
  auto ranks = static_cast<size_t>(size_), me = static_cast<size_t>(rank_);
  exchange_->prepare(longest);
  size_t most = exchange_->part_bytes(Round::each), first = 0;
  Parts parts;
  do {
    for (size_t r = 0; r < ranks; ++r) {
      parts.sends[r] = part(at(in, from.begin(r) + first), from.part(r, first, most));
      parts.receives[r] = {at(out, to.begin(r) + first), to.part(r, first, most)};
    }
    exchange_->round(parts.sends, parts.receives);
    copy(at(out, to.begin(me) + first), at(in, from.begin(me) + first), from.part(me, first, most));
    first += std::min(most, longest);
  } while (first < longest);
  exchange_->end();
}

}  // namespace ds
