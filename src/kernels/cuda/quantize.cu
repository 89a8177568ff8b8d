// Codes of gradients and parameters that travel, with the bits of the CPU's kernels. A block has a
// granule of 256 elements, a thread an element; the largest of them, which the scale is made of,
// does not depend on the order in which it is looked for. With 4 bits a thread of the lower half
// writes its code and that of the element 128 further on.
#include "core/program/codes.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/quantize.h"

namespace ds::cuda {
namespace {

DS_DEVICE int code_of(float x, float inverse) { return static_cast<int>(rintf(x * inverse)); }
DS_DEVICE int64_t code_place(int64_t granule, int32_t bits) {
  return granule * (4 + kGranule * bits / 8);
}

// Scales need not be aligned.
DS_DEVICE void put_scale(uint8_t* to, float scale) {
  const uint32_t u = bits_of(scale);
  to[0] = static_cast<uint8_t>(u);
  to[1] = static_cast<uint8_t>(u >> 8);
  to[2] = static_cast<uint8_t>(u >> 16);
  to[3] = static_cast<uint8_t>(u >> 24);
}
DS_DEVICE float decode(const uint8_t* codes, int32_t bits, int e) {
  const float scale =
      from_bits(static_cast<uint32_t>(codes[0]) | static_cast<uint32_t>(codes[1]) << 8 |
                static_cast<uint32_t>(codes[2]) << 16 | static_cast<uint32_t>(codes[3]) << 24);
  codes += 4;
  if (bits == 8) return static_cast<float>(static_cast<int8_t>(codes[e])) * scale;
  constexpr int kHalf = kGranule / 2;
  const int nibble = e < kHalf ? codes[e] & 15 : codes[e - kHalf] >> 4;
  return static_cast<float>(nibble < 8 ? nibble : nibble - 16) * scale;
}

}  // namespace

DS_BLOCK_KERNEL(quantize, CodesArgs, kCodeThreads) {
  DS_SHARED(float, room);  // two for sums over the block, then 256 codes
  auto* wide = reinterpret_cast<int*>(room + 2 * kRoom);
  const int e = static_cast<int>(threadIdx.x);
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kGranule + e;
  uint8_t* codes = a.codes + code_place(blockIdx.x, a.bits);
  const float given = get(a.x, at);
  const bool fresh = a.reset > 0 && a.scalars->step % a.reset == 0;
  // Nothing to send: the error waits. The largest of flags, then of sizes.
  const bool idle = over_block<Larger>(given == 0 ? 0.0f : 1.0f, room) == 0;
  const bool fed = a.error && !fresh && !idle;
  const float held = fed ? a.error[at] : 0.0f, value = given + held;
  const bool finite = value - value == 0;
  const float top = over_block<Larger>(finite ? fabsf(value) : INFINITY, room + kRoom);
  const bool known = top < INFINITY;
  float scale = top / (a.bits == 8 ? 127.0f : 7.0f);
  scale = scale > kLeastScale ? scale : kLeastScale;
  const int code = known ? code_of(value, 1 / scale) : 0;
  if (e == 0) put_scale(codes, known ? scale : from_bits(0x7fc00000u));
  if (a.bits == 8) {
    codes[4 + e] = static_cast<uint8_t>(code);
  } else {
    wide[e] = code & 15;
    __syncthreads();
    if (e < kGranule / 2)
      codes[4 + e] = static_cast<uint8_t>(wide[e] | wide[e + kGranule / 2] << 4);
  }
  if (!a.error || a.scalars->skip != 0 || !(fed || fresh)) return;
  float error = 0;
  if (known) {
    const float lost = value - static_cast<float>(code) * scale;
    error = a.keep * held + a.take * lost;
  }
  a.error[at] = error;
}

DS_LOOP_KERNEL(dequantize, CodesArgs) {
  const int64_t i = thread_number();
  if (i >= a.granules * kGranule) return;
  put(a.x, i,
      decode(a.codes + code_place(i / kGranule, a.bits), a.bits, static_cast<int>(i % kGranule)));
}

// Codes of rank r begin behind those of the ranks before it.
DS_LOOP_KERNEL(dequantize_sum, CodesArgs) {
  const int64_t i = thread_number();
  if (i >= a.granules * kGranule) return;
  put(a.x, i, sum_of_ranks(a.ranks, [&](int64_t r) {
        return decode(a.codes + code_place(r * a.granules + i / kGranule, a.bits), a.bits,
                      static_cast<int>(i % kGranule));
      }));
}

}  // namespace ds::cuda
