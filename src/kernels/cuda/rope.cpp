// The host side of `rope`: computes the rotation of each pair in f64 and passes it in the argument.
// Some scalings depend on the length of the text, which only the device knows. For longrope there
// are two launches, one with the rotations for short texts and one with the rotations for long
// texts. For the scaling "dynamic" there is one launch, which gets the constants of the formula.
#include "kernels/formulas/rope.h"

#include <fmt/core.h>

#include <memory>
#include <numbers>
#include <span>
#include <string>
#include <vector>

#include "core/graph/ops/rope_length.h"
#include "kernels/cuda/element_args.h"
#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/host.h"
#include "kernels/cuda/kernel.h"
#include "kernels/cuda/rope.h"

namespace ds::cuda {
namespace {

void put_turns(RopeArgs& a, const Rope& rope) {
  for (int i = 0; i < a.pairs; ++i) a.turns[i] = rope.frequency(i) / std::numbers::pi;
}

std::unique_ptr<Kernel> make_rope(const Query& query, std::string* refusal) {
  const bool by_length = query.in.size() == 3 && depends_on_length(query.attrs);
  const int64_t original = by_length ? query.attrs.integer("original") : 0;
  const Rope rope(query.attrs, query.in[0].dims[1], original);
  if (rope.dims / 2 > kMostPairs) {
    *refusal = fmt::format("rope rotates {} columns of a head, but the device supports at most {}",
                           rope.dims, 2 * kMostPairs);
    return nullptr;
  }
  RopeArgs a{};
  a.width = query.in[0].dims[1], a.seq = rope.seq;
  a.heads = static_cast<int32_t>(rope.heads), a.depth = static_cast<int32_t>(rope.depth);
  a.pairs = static_cast<int32_t>(rope.dims / 2);
  a.period = static_cast<int32_t>(rope.period), a.rotated = static_cast<int32_t>(rope.rotated);
  a.interleaved = rope.interleaved;
  a.magnitude = rope.magnitude;
  a.original = original;
  put_turns(a, rope);
  std::vector<RopeArgs> starts{a};
  if (by_length && query.attrs.has("long_factors")) {
    starts.push_back(a);
    // The second launch has the rotations for texts longer than the original length.
    starts[0].only = -1, starts[1].only = 1;
    put_turns(starts[1], Rope(query.attrs, query.in[0].dims[1], original + 1));
  } else if (by_length) {
    starts[0].factor = query.attrs.real("factor"), starts[0].power = query.attrs.real("power");
  }
  return made([=](Launcher& launcher, const Arguments& c) {
    // If some columns are not rotated, y is first set to a copy of x.
    const bool whole = 2 * a.pairs == a.depth && a.rotated >= a.period;
    if (!whole) copy_bytes(launcher, c.in[0].data, c.out[0].data, c.in[0].bytes());
    for (RopeArgs own : starts) {
      own.x = operand(c.in[0]);
      own.y = operand(c.out[0]);
      own.positions = c.in.size() >= 2 ? c.in[1].as<int32_t>() : nullptr;
      own.length = by_length ? c.in[2].as<int32_t>() : nullptr;
      own.rows = c.in[0].dims[0];
      start(launcher, "rope", {blocks(own.rows * own.pairs, kThreads)}, {kThreads}, own);
    }
  });
}

constexpr KernelRow kRows[] = {{"rope", make_rope}};

}  // namespace

std::span<const KernelRow> rope_rows() { return kRows; }

}  // namespace ds::cuda
