#pragma once
#include <cstdint>

// Functions with this attribute use AMX and run only if effective_isa() is Isa::amx.
#define DS_TARGET_AMX \
  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,amx-tile,amx-bf16")))
#define DS_AMX_INLINE DS_TARGET_AMX inline __attribute__((always_inline))

// The instructions of AMX. The index of a tile is a template argument, because the intrinsics of
// g++ 12 accept only literal digits. A tile has up to 16 rows of 64 bytes. A row holds 16 f32 sums,
// 32 bf16 elements of a, or 16 columns of b as pairs of bf16 (two neighbours along k in one word,
// the lower k in the low half).
namespace ds::amx {

// The number of rows of a tile, and of 32-bit words in a row.
constexpr int64_t kSide = 16;
// The number of bytes in a row of a tile.
constexpr int64_t kLine = 64;

// The operand of ldtilecfg: the number of rows of each tile and the bytes of its rows. By default
// all eight tiles have the full size.
struct alignas(64) Config {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {kLine, kLine, kLine, kLine, kLine, kLine, kLine, kLine};
  uint8_t rows[16] = {kSide, kSide, kSide, kSide, kSide, kSide, kSide, kSide};
};

// Configures the calling thread's tiles, until release().
DS_AMX_INLINE void configure(const Config& config) {
  asm volatile("ldtilecfg %0" ::"m"(config) : "memory");
}
DS_AMX_INLINE void release() { asm volatile("tilerelease"); }

// Load a tile from memory, or store it to memory, where rows are `row_bytes` apart.
template <int kNumber>
DS_AMX_INLINE void load(const void* from, int64_t row_bytes) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(row_bytes), "i"(kNumber)
               : "memory");
}
template <int kNumber>
DS_AMX_INLINE void store(void* to, int64_t row_bytes) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(row_bytes), "i"(kNumber) : "memory");
}
template <int kNumber>
DS_AMX_INLINE void zero() {
  asm volatile("tilezero %%tmm%c0" ::"i"(kNumber));
}
// Adds the product of the rows of tile kA and the columns of tile kB to tile kSum. The products
// with even k and those with odd k are first summed separately.
template <int kSum, int kA, int kB>
DS_AMX_INLINE void multiply() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSum), "i"(kA), "i"(kB));
}

}  // namespace ds::amx
