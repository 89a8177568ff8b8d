#pragma once
#include <cstdint>
#include <vector>

#include "kernels/cpu/features.h"

// The loops that measure a processor's peak, one file for each architecture.
namespace ds {

// Independent chains of instructions in a loop: more than latency times instructions per cycle.
constexpr int kChains = 12;

// run(turns) executes `turns` times kChains instructions of `flops` each.
struct FlopLoop {
  void (*run)(long turns) = nullptr;
  int flops = 0;
  long turns = 2'000'000;
};

// The widest loop of `isa` on f32; run is null where there is no loop.
FlopLoop f32_loop(Isa isa);
// The loops of `isa` on bf16.
std::vector<FlopLoop> bf16_loops(Isa isa);

// a = b + 3 c of `count` doubles, 64-byte aligned, past the caches where the processor can.
void triad(double* a, const double* b, const double* c, int64_t count);

}  // namespace ds
