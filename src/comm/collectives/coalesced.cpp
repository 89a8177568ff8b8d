#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/collectives/collective.h"
#include "comm/copy.h"
#include "comm/reduction.h"
#include "core/base/round.h"

// Each function performs one collective over a list of buffers. Small buffers that are neighbours
// in the list share rounds: they are packed into scratch memory, one loop of rounds processes the
// pack, and the results are unpacked. Larger buffers are not copied; each has separate rounds.
// Packs depend only on the counts, so all ranks form the same packs.
namespace ds {
namespace {

// Buffers are packed together up to this many bytes, counted over all ranks.
constexpr size_t kPacked = size_t{2} << 20;

// Buffers [first, last) of a list that share rounds; `count` is the sum of their counts.
struct Pack {
  size_t first, last, count;
  bool alone() const { return last - first == 1; }
};

// Packs neighbours greedily as long as the sum of their counts is at most `most`.
std::vector<Pack> packs_of(std::span<const size_t> counts, size_t most) {
  std::vector<Pack> out;
  for (size_t i = 0; i < counts.size(); ++i) {
    bool fits = !out.empty() && out.back().count + counts[i] <= most;
    if (!fits) out.push_back({i, i, 0});
    ++out.back().last;
    out.back().count += counts[i];
  }
  return out;
}

size_t sum(std::span<const size_t> counts) {
  size_t out = 0;
  for (size_t count : counts) out += count;
  return out;
}

uint64_t hash_of(std::span<const size_t> counts) {
  return hash64({reinterpret_cast<const char*>(counts.data()), counts.size_bytes()});
}

// Scratch memory for the largest pack of several buffers, with `give` bytes for the input and
// `take` bytes for the result of each unit of count.
struct Room {
  Room(Exchange& exchange, const std::vector<Pack>& packs, size_t give, size_t take) {
    size_t most = 0;
    for (const Pack& pack : packs) most = std::max(most, pack.alone() ? 0 : pack.count);
    size_t first = round_up(most * give, 64);
    given = exchange.scratch(first + most * take);
    taken = given + first;
  }
  std::byte *given, *taken;
};

void check_lists(size_t in, size_t out, size_t counts) {
  require(in == counts && out == counts,
          "there must be as many buffers as counts ({}), got {} in and {} out", counts, in, out);
}

}  // namespace

void Communicator::all_reduce_coalesced(std::span<const void* const> in, std::span<void* const> out,
                                        std::span<const size_t> counts, DType wire,
                                        std::string_view label, ReduceOp op) {
  check_reduction(wire, op);
  check_lists(in.size(), out.size(), counts.size());
  size_t ranks = static_cast<size_t>(size_), unit = unit_of(wire), to = sum_size(wire),
         all = sum(counts);
  std::string detail = reduction_detail(wire, op);
  perform({"all_reduce_coalesced", detail, all * unit, label, hash_of(counts)}, [&] {
    std::vector<Pack> packs = packs_of(counts, kPacked / ranks / to);
    // The pack and its sums are in the order of the list.
    Room room(*exchange_, packs, unit, to);
    Rounds rounds(*exchange_);
    for (const Pack& pack : packs) {
      if (pack.alone()) {
        rounds.sum_to(in[pack.first], out[pack.first], pack.count, wire, op, -1);
        continue;
      }
      for (size_t i = pack.first, at = 0; i < pack.last; at += counts[i++] * unit)
        ds::copy(&room.given[at], in[i], counts[i] * unit);
      rounds.sum_to(room.given, room.taken, pack.count, wire, op, -1);
      for (size_t i = pack.first, at = 0; i < pack.last; at += counts[i++] * to)
        ds::copy(out[i], &room.taken[at], counts[i] * to);
    }
    return all * (unit + to) * (ranks - 1) / ranks;
  });
}

void Communicator::all_gather_coalesced(std::span<const void* const> in, std::span<void* const> out,
                                        std::span<const size_t> bytes, std::string_view label) {
  check_lists(in.size(), out.size(), bytes.size());
  size_t ranks = static_cast<size_t>(size_), all = sum(bytes);
  perform({"all_gather_coalesced", "", all, label, hash_of(bytes)}, [&] {
    std::vector<Pack> packs = packs_of(bytes, kPacked / ranks);
    Room room(*exchange_, packs, 1, ranks);
    Rounds rounds(*exchange_);
    for (const Pack& pack : packs) {
      Blocks blocks(size_, pack.count);
      if (pack.alone()) {
        rounds.gather_blocks(in[pack.first], out[pack.first], blocks);
        continue;
      }
      for (size_t i = pack.first, at = 0; i < pack.last; at += bytes[i++])
        ds::copy(&room.given[at], in[i], bytes[i]);
      rounds.gather_blocks(room.given, room.taken, blocks);
      // A rank's block has its parts of all buffers of the pack, so each result consists of one
      // piece of every block.
      for (size_t r = 0; r < ranks; ++r) {
        for (size_t i = pack.first, from = blocks.begin(r); i < pack.last; from += bytes[i++])
          ds::copy(at(out[i], r * bytes[i]), &room.taken[from], bytes[i]);
      }
    }
    return all * (ranks - 1);
  });
}

void Communicator::reduce_scatter_coalesced(std::span<const void* const> in,
                                            std::span<void* const> out,
                                            std::span<const size_t> counts, DType wire,
                                            std::string_view label, ReduceOp op) {
  check_reduction(wire, op);
  check_lists(in.size(), out.size(), counts.size());
  size_t ranks = static_cast<size_t>(size_), unit = unit_of(wire), to = sum_size(wire),
         all = sum(counts);
  std::string detail = reduction_detail(wire, op);
  perform({"reduce_scatter_coalesced", detail, all * unit, label, hash_of(counts)}, [&] {
    std::vector<Pack> packs = packs_of(counts, kPacked / ranks / unit);
    Room room(*exchange_, packs, unit * ranks, to);
    Rounds rounds(*exchange_);
    for (const Pack& pack : packs) {
      Blocks blocks(size_, pack.count);
      if (pack.alone()) {
        rounds.scatter_sums(in[pack.first], out[pack.first], blocks, wire, op);
        continue;
      }
      // Each buffer has a block for each rank, and the pack must have one, too: for each rank, its
      // blocks of all buffers are copied to consecutive places.
      for (size_t r = 0; r < ranks; ++r) {
        for (size_t i = pack.first, to_at = blocks.begin(r); i < pack.last; to_at += counts[i++])
          ds::copy(&room.given[to_at * unit], at(in[i], r * counts[i] * unit), counts[i] * unit);
      }
      rounds.scatter_sums(room.given, room.taken, blocks, wire, op);
      for (size_t i = pack.first, from = 0; i < pack.last; from += counts[i++] * to)
        ds::copy(out[i], &room.taken[from], counts[i] * to);
    }
    return all * unit * (ranks - 1);
  });
}

void Communicator::broadcast_coalesced(std::span<void* const> data, std::span<const size_t> bytes,
                                       int root, std::string_view label) {
  check_root(root, size_);
  check_lists(data.size(), data.size(), bytes.size());
  size_t ranks = static_cast<size_t>(size_), all = sum(bytes);
  std::string detail = fmt::format("from {}", exchange_->world(root));
  perform({"broadcast_coalesced", detail, all, label, hash_of(bytes)}, [&] {
    std::vector<Pack> packs = packs_of(bytes, kPacked / ranks);
    Room room(*exchange_, packs, 1, 0);
    Rounds rounds(*exchange_);
    for (const Pack& pack : packs) {
      if (pack.alone()) {
        rounds.spread(data[pack.first], pack.count, root);
        continue;
      }
      // The root only packs, and the other ranks only unpack.
      bool giver = rank_ == root;
      for (size_t i = pack.first, at = 0; giver && i < pack.last; at += bytes[i++])
        ds::copy(&room.given[at], data[i], bytes[i]);
      rounds.spread(room.given, pack.count, root);
      for (size_t i = pack.first, at = 0; !giver && i < pack.last; at += bytes[i++])
        ds::copy(data[i], &room.given[at], bytes[i]);
    }
    return rank_ == root ? 0 : all;
  });
}

}  // namespace ds
