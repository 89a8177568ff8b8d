// Problem: checkpoints and callers see states as f32, but a state may be f32, bf16 or 8-bit codes,
// in device or host memory or in a file. EngineMemory converts plain types and accesses all tiers.
// Codes share a scale per block of kStateBlock elements, so a write decodes a block, replaces
// elements and encodes the block again. Encoding decoded values again is exact unless the scale of
// the block grows (core/program/state_codes.h).
#include "engine/state_values.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>
#include <vector>

#include "core/base/error.h"
#include "core/base/round.h"
#include "kernels/cpu/cpu.h"

namespace ds {

const HeldState& StateValues::codes_of(BufferId codes) const {
  const HeldState* found = nullptr;
  for (const BucketState& s : zero_.buckets) {
    s.for_each([&](const HeldState& held) {
      if (held.ref.buffer == codes) found = &held;
    });
  }
  ensure(found, "%{} holds no codes of states", runtime_.buffer(codes).name);
  return *found;
}

// Calls use(codes, scale, begin, count) for the part of [element, element + count) in each block.
void StateValues::for_blocks(const HeldState& held, int64_t element, int64_t count, bool write,
                             const BlockUse& use) const {
  // The largest number of blocks that are read or written together.
  constexpr int64_t kMost = 4096;
  std::vector<uint8_t> codes, scales;
  for (int64_t at = element, end = element + count; at < end;) {
    const int64_t low = at / kStateBlock, high = std::min(ceil_div(end, kStateBlock), low + kMost);
    const int64_t stop = std::min(end, high * kStateBlock);
    codes.resize(static_cast<size_t>((high - low) * kStateBlock));
    scales.resize(static_cast<size_t>(high - low));
    const Buffer &of_codes = runtime_.buffer(held.ref.buffer),
                 &of_scales = runtime_.buffer(held.scales.buffer);
    runtime_.memory().read_bytes(of_codes, low * kStateBlock, std::ssize(codes), codes.data());
    runtime_.memory().read_bytes(of_scales, low, std::ssize(scales), scales.data());
    for (; at < stop; at = std::min(stop, (at / kStateBlock + 1) * kStateBlock)) {
      const int64_t block = at / kStateBlock - low, begin = at % kStateBlock;
      use(codes.data() + block * kStateBlock, scales[static_cast<size_t>(block)], begin,
          std::min(kStateBlock - begin, stop - at));
    }
    if (!write) continue;
    runtime_.memory().write_bytes(of_codes, low * kStateBlock, std::ssize(codes), codes.data());
    runtime_.memory().write_bytes(of_scales, low, std::ssize(scales), scales.data());
  }
}

void StateValues::read(BufferId id, int64_t element, int64_t count, float* out) const {
  if (runtime_.buffer(id).dtype == DS_DTYPE_U8) {
    const HeldState& held = codes_of(id);
    return for_blocks(held, element, count, false,
                      [&](uint8_t* codes, uint8_t& scale, int64_t begin, int64_t n) {
                        const StateScale s(held.codes, scale);
                        for (int64_t e = begin; e < begin + n; ++e)
                          *out++ = decode_state(codes[e], held.codes, s);
                      });
  }
  runtime_.memory().read_floats(runtime_.buffer(id), element, count, out);
}

void StateValues::write(BufferId id, int64_t element, int64_t count, const float* in) {
  if (runtime_.buffer(id).dtype == DS_DTYPE_U8) {
    const HeldState& held = codes_of(id);
    return for_blocks(held, element, count, true,
                      [&](uint8_t* codes, uint8_t& scale, int64_t begin, int64_t n) {
                        std::array<float, kStateBlock> block;
                        // The other elements of the block are encoded again, too, because the scale
                        // may change.
                        const StateScale before(held.codes, scale);
                        for (size_t e = 0; e < block.size(); ++e)
                          block[e] = decode_state(codes[e], held.codes, before);
                        for (int64_t e = begin; e < begin + n; ++e)
                          block[static_cast<size_t>(e)] = *in++;
                        encode_block(block, held.codes, codes, scale);
                      });
  }
  runtime_.memory().write_floats(runtime_.buffer(id), element, count, in);
}

void StateValues::zero(const HeldState& held) {
  const Buffer& buffer = runtime_.buffer(held.ref.buffer);
  runtime_.memory().fill(buffer, 0, 0, buffer.bytes());
}

// Sets the initial states of the elements [low, high) of the bucket that are in this rank's part. A
// momentum that every rank keeps whole is set for all elements [low, high).
void StateValues::begin(BucketId bucket, int64_t low, int64_t high) {
  const BucketState& s = zero_.buckets[bucket];
  std::vector<float> block(1 << 16);
  auto pieces = [&](int64_t begin, int64_t end, auto&& body) {
    for (int64_t at = begin; at < end; at += std::ssize(block))
      body(at, std::min(std::ssize(block), end - at));
  };
  const int64_t own = zero_.part_first(bucket), from = std::max(low, own),
                to = std::min(high, own + zero_.part_numel(bucket));
  for (const HeldState& held : s.states) {
    if (!held.row.canonical()) continue;
    const StateRef& state = held.ref;
    const bool whole = runtime_.buffer(state.buffer).numel > state.numel;
    // The element of the bucket at which the buffer starts.
    const int64_t begin = whole ? 0 : own - state.first;
    pieces(whole ? low : from, whole ? high : to,
           [&](int64_t at, int64_t n) { write(state.buffer, at - begin, n, block.data()); });
  }
  if (s.own_master()) return;
  pieces(from, to, [&](int64_t at, int64_t n) {
    read(s.param.ref.buffer, s.param.ref.first + at - own, n, block.data());
    write(s.master.ref.buffer, s.master.ref.first + at - own, n, block.data());
  });
}

void StateValues::begin(BucketId bucket) {
  for (const HeldState& s : zero_.buckets[bucket].states) {
    if (!s.row.canonical()) zero(s);
  }
  begin(bucket, 0, zero_.layout.buckets[bucket].numel);
}

void StateValues::begin(ParamId param) {
  const BucketId b = zero_.layout.bucket_of[param];
  const std::vector<ParamPlace>& params = zero_.layout.buckets[b].params;
  const size_t next = zero_.layout.place_of[param] + 1;
  begin(b, zero_.layout.place(param).begin,
        next < params.size() ? params[next].begin : zero_.layout.buckets[b].numel);
}

}  // namespace ds
