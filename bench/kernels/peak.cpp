#include "peak.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

#include "kernels/cpu/features.h"

namespace ds::bench {
namespace {

constexpr long kTurns = 2'000'000;
constexpr int kChains = 12;  // more than latency times instructions per cycle

template <typename F>
double seconds_of(const F& f) {
  double best = 1e9;
  for (int i = 0; i < 5; ++i) {
    auto begin = std::chrono::steady_clock::now();
    f();
    std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    best = std::min(best, taken.count());
  }
  return best;
}

// kTurns times kChains independent instructions of one kind.
void f32_256() {
  asm volatile(
      "mov %0, %%rcx\n1:\n"
      "vfmadd231ps %%ymm14, %%ymm15, %%ymm0\n vfmadd231ps %%ymm14, %%ymm15, %%ymm1\n"
      "vfmadd231ps %%ymm14, %%ymm15, %%ymm2\n vfmadd231ps %%ymm14, %%ymm15, %%ymm3\n"
      "vfmadd231ps %%ymm14, %%ymm15, %%ymm4\n vfmadd231ps %%ymm14, %%ymm15, %%ymm5\n"
      "vfmadd231ps %%ymm14, %%ymm15, %%ymm6\n vfmadd231ps %%ymm14, %%ymm15, %%ymm7\n"
      "vfmadd231ps %%ymm14, %%ymm15, %%ymm8\n vfmadd231ps %%ymm14, %%ymm15, %%ymm9\n"
      "vfmadd231ps %%ymm14, %%ymm15, %%ymm10\n vfmadd231ps %%ymm14, %%ymm15, %%ymm11\n"
      "dec %%rcx\n jnz 1b\n vzeroupper\n" ::"r"(kTurns)
      : "rcx", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10",
        "xmm11", "xmm14", "xmm15", "cc");
}

void f32_512() {
  asm volatile(
      "mov %0, %%rcx\n1:\n"
      "vfmadd231ps %%zmm14, %%zmm15, %%zmm0\n vfmadd231ps %%zmm14, %%zmm15, %%zmm1\n"
      "vfmadd231ps %%zmm14, %%zmm15, %%zmm2\n vfmadd231ps %%zmm14, %%zmm15, %%zmm3\n"
      "vfmadd231ps %%zmm14, %%zmm15, %%zmm4\n vfmadd231ps %%zmm14, %%zmm15, %%zmm5\n"
      "vfmadd231ps %%zmm14, %%zmm15, %%zmm6\n vfmadd231ps %%zmm14, %%zmm15, %%zmm7\n"
      "vfmadd231ps %%zmm14, %%zmm15, %%zmm8\n vfmadd231ps %%zmm14, %%zmm15, %%zmm9\n"
      "vfmadd231ps %%zmm14, %%zmm15, %%zmm10\n vfmadd231ps %%zmm14, %%zmm15, %%zmm11\n"
      "dec %%rcx\n jnz 1b\n vzeroupper\n" ::"r"(kTurns)
      : "rcx", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10",
        "xmm11", "xmm14", "xmm15", "cc");
}

void bf16_512() {
  asm volatile(
      "mov %0, %%rcx\n1:\n"
      "vdpbf16ps %%zmm14, %%zmm15, %%zmm0\n vdpbf16ps %%zmm14, %%zmm15, %%zmm1\n"
      "vdpbf16ps %%zmm14, %%zmm15, %%zmm2\n vdpbf16ps %%zmm14, %%zmm15, %%zmm3\n"
      "vdpbf16ps %%zmm14, %%zmm15, %%zmm4\n vdpbf16ps %%zmm14, %%zmm15, %%zmm5\n"
      "vdpbf16ps %%zmm14, %%zmm15, %%zmm6\n vdpbf16ps %%zmm14, %%zmm15, %%zmm7\n"
      "vdpbf16ps %%zmm14, %%zmm15, %%zmm8\n vdpbf16ps %%zmm14, %%zmm15, %%zmm9\n"
      "vdpbf16ps %%zmm14, %%zmm15, %%zmm10\n vdpbf16ps %%zmm14, %%zmm15, %%zmm11\n"
      "dec %%rcx\n jnz 1b\n vzeroupper\n" ::"r"(kTurns)
      : "rcx", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10",
        "xmm11", "xmm14", "xmm15", "cc");
}

// Flops a second of `f`, whose instructions do `flops` each.
double rate(void (*f)(), int flops) { return kTurns * kChains * flops / seconds_of(f); }

double measure_f32() {
  Isa isa = machine_isa();
  if (isa == Isa::sse4) return 0;  // no fused multiply-add to measure
  return isa == Isa::avx2 ? rate(f32_256, 16) : rate(f32_512, 32);
}

double measure_bytes() {
  std::vector<char> from(size_t{256} << 20, 1), to(from.size(), 2);
  double seconds = seconds_of([&] { std::memcpy(to.data(), from.data(), from.size()); });
  return 2.0 * static_cast<double>(from.size()) / seconds;
}

}  // namespace

double peak_f32_flops() {
  static const double flops = measure_f32();
  return flops;
}

double peak_bf16_flops() {
  static const double flops = machine_isa() < Isa::avx512_bf16 ? peak_f32_flops() : rate(bf16_512, 64);
  return flops;
}

double peak_bytes() {
  static const double bytes = measure_bytes();
  return bytes;
}

}  // namespace ds::bench
