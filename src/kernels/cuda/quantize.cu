// Quantizes gradients and parameters for collectives, with the same bits as the CPU's kernels
// (kernels/ref/quantize.cpp; core/program/codes.h defines the layout). A block of threads processes
// a granule of 256 elements, one per thread. The scale comes from the largest magnitude, which does
// not depend on the order of comparisons. With 4 bits, a thread of the lower half writes the code
// of its own element and the code of the element 128 positions later.
#include "core/program/codes.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/quantize.h"

namespace ds::cuda {
namespace {

// Returns the nearest code; ties are rounded to even.
DS_DEVICE int code_of(float x, float inverse) { return static_cast<int>(rintf(x * inverse)); }
// Returns the offset of a granule in the codes. Each granule has four bytes of scale and `bits`
// bits for each element.
DS_DEVICE int64_t code_place(int64_t granule, int32_t bits) {
  return granule * (4 + kGranule * bits / 8);
}

// Writes a scale byte by byte, because it need not be aligned.
DS_DEVICE void put_scale(uint8_t* to, float scale) {
  const uint32_t u = bits_of(scale);
  to[0] = static_cast<uint8_t>(u);
  to[1] = static_cast<uint8_t>(u >> 8);
  to[2] = static_cast<uint8_t>(u >> 16);
  to[3] = static_cast<uint8_t>(u >> 24);
}
// Returns element e of a granule. With 4 bits, elements e and e + 128 share a byte.
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
  // Shared memory holds room for two maxima over the block, then 256 codes.
  DS_SHARED(float, room);
  auto* wide = reinterpret_cast<int*>(room + 2 * kRoom);
  const int e = static_cast<int>(threadIdx.x);
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kGranule + e;
  uint8_t* codes = a.codes + code_place(blockIdx.x, a.bits);
  const float given = get(a.x, at);
  // The error is cleared in every a.reset-th step.
  const bool fresh = a.reset > 0 && a.scalars->step % a.reset == 0;
  // A granule of zeros is sent as zeros, and its error is kept for a later step. Both this flag and
  // the largest magnitude are maxima over the block.
  const bool idle = over_block<Larger>(given == 0 ? 0.0f : 1.0f, room) == 0;
  const bool fed = a.error && !fresh && !idle;
  const float held = fed ? a.error[at] : 0.0f, value = given + held;
  const bool finite = value - value == 0;
  const float top = over_block<Larger>(finite ? fabsf(value) : INFINITY, room + kRoom);
  // If an element is not finite, the scale is NaN, so that the receivers decode NaN.
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
  // A skipped step does not change the error. Neither does a granule of zeros, unless this step
  // clears errors.
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

// Decodes and adds up the codes of all ranks, in the order of a reduction. The codes of the ranks
// are stored one after the other, by rank.
DS_LOOP_KERNEL(dequantize_sum, CodesArgs) {
  const int64_t i = thread_number();
  if (i >= a.granules * kGranule) return;
  put(a.x, i, sum_of_ranks(a.ranks, [&](int64_t r) {
        return decode(a.codes + code_place(r * a.granules + i / kGranule, a.bits), a.bits,
                      static_cast<int>(i % kGranule));
      }));
}

}  // namespace ds::cuda
