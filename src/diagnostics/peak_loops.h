#pragma once
#include <cstdint>
#include <vector>

#include "core/device/cpu_features.h"

// The loops that measure the peak rates of a processor. Each architecture has one source file.
namespace ds {

// Number of independent chains of instructions in a loop, which must exceed latency times
// instructions per cycle.
constexpr int kChains = 12;

// A loop whose flops per second are measured: run(turns) executes kChains instructions of `flops`
// operations each, `turns` times.
struct FlopLoop {
  void (*run)(long turns) = nullptr;
  int flops = 0;
  long turns = 2'000'000;
};

// Returns the loop with the widest f32 vectors of `isa`; `run` is null if `isa` has no fused
// multiply-add.
FlopLoop f32_loop(Isa isa);
// Returns the loops of `isa` for bf16.
std::vector<FlopLoop> bf16_loops(Isa isa);

// Computes a = b + 3 c over `count` doubles, 64-byte aligned, with stores that bypass the caches if
// the processor has them.
void triad(double* a, const double* b, const double* c, int64_t count);

}  // namespace ds
