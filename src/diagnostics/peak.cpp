#include "diagnostics/peak.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "core/base/trace.h"
#include "core/device/cpu_features.h"
#include "diagnostics/peak_loops.h"

namespace ds {
namespace {

constexpr int kRepeats = 10;
// Number of doubles of one array of the triad.
constexpr int64_t kNumbers = int64_t{16} << 20;
// Number of doubles of one task.
constexpr int64_t kBlock = int64_t{1} << 16;

// Returns the seconds of the fastest of kRepeats calls.
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

// Returns the flops per second of `loop` on all threads at once.
double rate(ThreadTeam& team, const FlopLoop& loop) {
  double work = static_cast<double>(loop.turns) * kChains * loop.flops * team.size();
  return work / seconds_of([&] {
           team.parallel_for(team.size(), [&](int64_t, int) { loop.run(loop.turns); });
         });
}

double f32_rate(ThreadTeam& team, Isa isa) {
  const FlopLoop loop = f32_loop(isa);
  return loop.run ? rate(team, loop) : 0;
}

// Returns the rate of the fastest instructions for bf16, including those for f32: an Intel core
// with tiles (Emerald Rapids) has half the rate with vectors of bf16 that it has with vectors of
// f32.
double bf16_rate(ThreadTeam& team, Isa isa, double f32_flops) {
  double best = f32_flops;
  for (const FlopLoop& loop : bf16_loops(isa)) best = std::max(best, rate(team, loop));
  return best;
}

struct FreeDeleter {
  void operator()(double* p) const { std::free(p); }
};
using Numbers = std::unique_ptr<double, FreeDeleter>;

Numbers make_numbers() {
  Numbers out(
      static_cast<double*>(std::aligned_alloc(64, static_cast<size_t>(kNumbers) * sizeof(double))));
  if (!out)
    raise(DS_ERROR_OUT_OF_MEMORY,
          "the triad needs 3 arrays of {} bytes, which the system does not provide",
          kNumbers * int64_t{8});
  return out;
}

// All threads fill the arrays first, so that their pages exist when the time is measured. As in
// STREAM, three numbers per element are counted. On x86 no more are moved, because the stores
// bypass the caches.
double triad_rate(ThreadTeam& team) {
  Numbers a = make_numbers(), b = make_numbers(), c = make_numbers();
  auto each_block = [&](auto&& body) {
    team.parallel_for(kNumbers / kBlock, [&](int64_t block, int) { body(block * kBlock); });
  };
  each_block([&](int64_t at) {
    for (double* array : {a.get(), b.get(), c.get()}) std::fill_n(array + at, kBlock, 1.0);
  });
  double seconds = seconds_of([&] {
    each_block([&](int64_t at) { triad(a.get() + at, b.get() + at, c.get() + at, kBlock); });
  });
  return 3.0 * static_cast<double>(kNumbers) * sizeof(double) / seconds;
}

}  // namespace

// A vector has half as many f64 as f32.
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
