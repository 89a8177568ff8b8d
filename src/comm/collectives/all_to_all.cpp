#include <fmt/core.h>

#include <algorithm>
#include <span>
#include <string_view>
#include <vector>

#include "comm/collectives/collective.h"

namespace ds {

// Every rank sends a different block to every other rank. Bytes received: (W-1) * bytes.
void Communicator::all_to_all(const void* in, void* out, size_t bytes, std::string_view label) {
  perform({"all_to_all", "", bytes, label}, [&] {
    Blocks blocks(size_, bytes);
    Rounds(*exchange_).swap_blocks(in, blocks, out, blocks, bytes);
    return bytes * static_cast<size_t>(size_ - 1);
  });
}

void Communicator::all_to_all_v(const void* in, std::span<const size_t> send, void* out,
                                std::span<const size_t> receive, std::string_view label) {
  Blocks from(size_, send, "send"), to(size_, receive, "receive");
  perform({"all_to_all_v", "", 0, label}, [&] {
    Rounds(*exchange_)
        .swap_blocks(in, from, out, to, Rounds(*exchange_).longest_block(send, receive));
    return to.total() - to.size(static_cast<size_t>(rank_));
  });
}

// All ranks exchange the sizes that they send. So a sender and a receiver that disagree get an
// error, and all ranks know the longest block and therefore run the same number of rounds.
size_t Rounds::longest_block(std::span<const size_t> send, std::span<const size_t> receive) {
  auto ranks = static_cast<size_t>(size_), me = static_cast<size_t>(rank_);
  std::vector<size_t> all(ranks * ranks);
  gather_blocks(send.data(), all.data(), Blocks(size_, send.size_bytes()));
  for (size_t r = 0; r < ranks; ++r) {
    size_t sent = all[r * ranks + me];
    if (sent != receive[r]) {
      exchange_.fail(fmt::format(
          "ranks differ: rank {} sends {} bytes to rank {}, which expects {}",
          exchange_.world(static_cast<int>(r)), sent, exchange_.world(rank_), receive[r]));
    }
  }
  return *std::ranges::max_element(all);
}

void Rounds::swap_blocks(const void* in, const Blocks& from, void* out, const Blocks& to,
                         size_t longest) {
  auto swap = [&](size_t r, size_t first, size_t most) -> GiveTake {
    return {to_send(at(in, from.begin(r) + first), from.overlap(r, first, most)),
            {at(out, to.begin(r) + first), to.overlap(r, first, most)}};
  };
  in_rounds(exchange_, Round::each, longest, swap);
}

}  // namespace ds
