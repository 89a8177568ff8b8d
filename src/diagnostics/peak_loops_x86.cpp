#include <emmintrin.h>

#include <cstdint>
#include <vector>

#include "core/device/cpu_features.h"
#include "diagnostics/peak_loops.h"
#include "kernels/cpu/amx.h"

namespace ds {
namespace {

// Number of turns of bf16_tiles(). A product of tiles takes 16 cycles, so fewer turns are enough.
constexpr long kTileTurns = 100'000;

// The next three functions execute kChains independent instructions `turns` times, on registers
// that are set to zero: their previous content may be subnormal, which slows an Intel core down by
// a factor of a hundred.
void f32_256(long turns) {
  asm volatile(
      "vzeroall\n mov %0, %%rcx\n1:\n"
      "vfmadd231ps %%ymm14, %%ymm15, %%ymm0\n vfmadd231ps %%ymm14, %%ymm15, %%ymm1\n"
      "vfmadd231ps %%ymm14, %%ymm15, %%ymm2\n vfmadd231ps %%ymm14, %%ymm15, %%ymm3\n"
      "vfmadd231ps %%ymm14, %%ymm15, %%ymm4\n vfmadd231ps %%ymm14, %%ymm15, %%ymm5\n"
      "vfmadd231ps %%ymm14, %%ymm15, %%ymm6\n vfmadd231ps %%ymm14, %%ymm15, %%ymm7\n"
      "vfmadd231ps %%ymm14, %%ymm15, %%ymm8\n vfmadd231ps %%ymm14, %%ymm15, %%ymm9\n"
      "vfmadd231ps %%ymm14, %%ymm15, %%ymm10\n vfmadd231ps %%ymm14, %%ymm15, %%ymm11\n"
      "dec %%rcx\n jnz 1b\n vzeroupper\n" ::"r"(turns)
      : "rcx", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9",
        "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15", "cc");
}

void f32_512(long turns) {
  asm volatile(
      "vzeroall\n mov %0, %%rcx\n1:\n"
      "vfmadd231ps %%zmm14, %%zmm15, %%zmm0\n vfmadd231ps %%zmm14, %%zmm15, %%zmm1\n"
      "vfmadd231ps %%zmm14, %%zmm15, %%zmm2\n vfmadd231ps %%zmm14, %%zmm15, %%zmm3\n"
      "vfmadd231ps %%zmm14, %%zmm15, %%zmm4\n vfmadd231ps %%zmm14, %%zmm15, %%zmm5\n"
      "vfmadd231ps %%zmm14, %%zmm15, %%zmm6\n vfmadd231ps %%zmm14, %%zmm15, %%zmm7\n"
      "vfmadd231ps %%zmm14, %%zmm15, %%zmm8\n vfmadd231ps %%zmm14, %%zmm15, %%zmm9\n"
      "vfmadd231ps %%zmm14, %%zmm15, %%zmm10\n vfmadd231ps %%zmm14, %%zmm15, %%zmm11\n"
      "dec %%rcx\n jnz 1b\n vzeroupper\n" ::"r"(turns)
      : "rcx", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9",
        "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15", "cc");
}

void bf16_512(long turns) {
  asm volatile(
      "vzeroall\n mov %0, %%rcx\n1:\n"
      "vdpbf16ps %%zmm14, %%zmm15, %%zmm0\n vdpbf16ps %%zmm14, %%zmm15, %%zmm1\n"
      "vdpbf16ps %%zmm14, %%zmm15, %%zmm2\n vdpbf16ps %%zmm14, %%zmm15, %%zmm3\n"
      "vdpbf16ps %%zmm14, %%zmm15, %%zmm4\n vdpbf16ps %%zmm14, %%zmm15, %%zmm5\n"
      "vdpbf16ps %%zmm14, %%zmm15, %%zmm6\n vdpbf16ps %%zmm14, %%zmm15, %%zmm7\n"
      "vdpbf16ps %%zmm14, %%zmm15, %%zmm8\n vdpbf16ps %%zmm14, %%zmm15, %%zmm9\n"
      "vdpbf16ps %%zmm14, %%zmm15, %%zmm10\n vdpbf16ps %%zmm14, %%zmm15, %%zmm11\n"
      "dec %%rcx\n jnz 1b\n vzeroupper\n" ::"r"(turns)
      : "rcx", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9",
        "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15", "cc");
}

// Multiplies 16 x 32 by 32 x 16 numbers with AMX, and adds the products to six tiles of sums in
// turn.
DS_TARGET_AMX void bf16_tiles(long turns) {
  static constexpr amx::Config config;
  amx::configure(config);
  for (long turn = 0; turn < turns * kChains / 6; ++turn) {
    amx::multiply<0, 6, 7>();
    amx::multiply<1, 6, 7>();
    amx::multiply<2, 6, 7>();
    amx::multiply<3, 6, 7>();
    amx::multiply<4, 6, 7>();
    amx::multiply<5, 6, 7>();
  }
  amx::release();
}

}  // namespace

FlopLoop f32_loop(Isa isa) {
  if (isa == Isa::sse4) return {};
  return isa == Isa::avx2 ? FlopLoop{f32_256, 16} : FlopLoop{f32_512, 32};
}

std::vector<FlopLoop> bf16_loops(Isa isa) {
  std::vector<FlopLoop> loops;
  if (isa >= Isa::avx512_bf16) loops.push_back({bf16_512, 64});
  if (isa == Isa::amx) loops.push_back({bf16_tiles, 2 * 16 * 16 * 32, kTileTurns});
  return loops;
}

// Uses streaming stores, so that `a` need not be read into the caches first.
void triad(double* a, const double* b, const double* c, int64_t count) {
  const __m128d factor = _mm_set1_pd(3.0);
  for (int64_t i = 0; i < count; i += 2) {
    _mm_stream_pd(a + i, _mm_add_pd(_mm_load_pd(b + i), _mm_mul_pd(factor, _mm_load_pd(c + i))));
  }
  _mm_sfence();
}

}  // namespace ds
