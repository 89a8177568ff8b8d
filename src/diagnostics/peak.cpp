#include "diagnostics/peak.h"

#include <emmintrin.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "core/base/trace.h"
#include "kernels/cpu/amx.h"
#include "kernels/cpu/features.h"

namespace ds {
namespace {

constexpr long kTurns = 2'000'000;
constexpr long kTileTurns = 100'000;  // a product of tiles takes 16 cycles
constexpr int kChains = 12;           // more than latency times instructions per cycle
constexpr int kRepeats = 10;
constexpr int64_t kNumbers = int64_t{16} << 20;  // doubles of one array of the triad
constexpr int64_t kBlock = int64_t{1} << 16;     // of them, one task

// The best of kRepeats.
template <typename F>
double seconds_of(const F& f) {
  double best = 1e9;
  for (int i = 0; i < kRepeats; ++i) {
    int64_t begin = now_ns();
    f();
    best = std::min(best, static_cast<double>(now_ns() - begin) * 1e-9);
  }
  return best;
}

// `turns` times kChains independent instructions of one kind, on zeros: what the registers held before may be
// subnormal, with which an Intel core takes a hundred times as long.
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
      : "rcx", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10",
        "xmm11", "xmm12", "xmm13", "xmm14", "xmm15", "cc");
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
      : "rcx", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10",
        "xmm11", "xmm12", "xmm13", "xmm14", "xmm15", "cc");
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
      : "rcx", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10",
        "xmm11", "xmm12", "xmm13", "xmm14", "xmm15", "cc");
}

// AMX: products of 16 x 32 by 32 x 16 numbers, on six tiles of sums in turns.
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

// Flops a second of `f` on every thread at once; its instructions do `flops` each.
double rate(ThreadTeam& team, void (*f)(long), int flops, long turns = kTurns) {
  double work = static_cast<double>(turns) * kChains * flops * team.size();
  return work / seconds_of([&] { team.parallel_for(team.size(), [&](int64_t, int) { f(turns); }); });
}

double f32_rate(ThreadTeam& team, Isa isa) {
  if (isa == Isa::sse4) return 0;
  return isa == Isa::avx2 ? rate(team, f32_256, 16) : rate(team, f32_512, 32);
}

// The fastest way to multiply bf16. An Intel core with tiles (Emerald Rapids) does half as many flops a
// second with vectors of bf16 as with those of f32.
double bf16_rate(ThreadTeam& team, Isa isa, double f32_flops) {
  double best = f32_flops;
  if (isa >= Isa::avx512_bf16) best = std::max(best, rate(team, bf16_512, 64));
  if (isa == Isa::amx) best = std::max(best, rate(team, bf16_tiles, 2 * 16 * 16 * 32, kTileTurns));
  return best;
}

struct FreeDeleter {
  void operator()(double* p) const { std::free(p); }
};
using Numbers = std::unique_ptr<double, FreeDeleter>;

Numbers make_numbers() {
  Numbers out(static_cast<double*>(std::aligned_alloc(64, static_cast<size_t>(kNumbers) * sizeof(double))));
  if (!out) raise(DS_ERROR_OUT_OF_MEMORY, "the triad takes 3 arrays of {} bytes", kNumbers * int64_t{8});
  return out;
}

void triad(double* a, const double* b, const double* c) {
  const __m128d factor = _mm_set1_pd(3.0);
  for (int64_t i = 0; i < kBlock; i += 2) {
    _mm_stream_pd(a + i, _mm_add_pd(_mm_load_pd(b + i), _mm_mul_pd(factor, _mm_load_pd(c + i))));
  }
  _mm_sfence();
}

double triad_rate(ThreadTeam& team) {
  Numbers a = make_numbers(), b = make_numbers(), c = make_numbers();
  auto each_block = [&](auto&& body) {
    team.parallel_for(kNumbers / kBlock, [&](int64_t block, int) { body(block * kBlock); });
  };
  each_block([&](int64_t at) {
    for (double* array : {a.get(), b.get(), c.get()}) std::fill_n(array + at, kBlock, 1.0);
  });
  double seconds =
      seconds_of([&] { each_block([&](int64_t at) { triad(a.get() + at, b.get() + at, c.get() + at); }); });
  return 3.0 * static_cast<double>(kNumbers) * sizeof(double) / seconds;
}

}  // namespace

double Peak::flops(DType arithmetic) const {
  if (arithmetic == DS_DTYPE_BF16) return bf16_flops;
  return arithmetic == DS_DTYPE_F64 ? f32_flops / 2 : f32_flops;
}

double Peak::seconds(const Cost& cost) const {
  double rate = flops(cost.arithmetic);
  return std::max(rate > 0 ? cost.flops / rate : 0, bytes > 0 ? cost.bytes / bytes : 0);
}

Peak best(const Peak& a, const Peak& b) {
  return {std::max(a.f32_flops, b.f32_flops), std::max(a.bf16_flops, b.bf16_flops),
          std::max(a.bytes, b.bytes)};
}

Peak measure_peak(ThreadTeam& team) {
  Isa isa = machine_isa();
  Peak peak;
  peak.f32_flops = f32_rate(team, isa);
  peak.bf16_flops = bf16_rate(team, isa, peak.f32_flops);
  peak.bytes = triad_rate(team);
  return peak;
}

}  // namespace ds
