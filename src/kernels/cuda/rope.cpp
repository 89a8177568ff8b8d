#include "kernels/rope.h"

#include <numbers>

#include "kernels/cuda/element_launch.h"
#include "kernels/cuda/host.h"
#include "kernels/cuda/rope_args.h"

namespace ds::cuda {
namespace {

std::unique_ptr<Kernel> make_rope(const Query& query, std::string* refusal) {
  if (!takes_floats(query, refusal)) return nullptr;
  const std::string_view scaling = query.attrs.text_or("scaling", "none");
  if (query.in.size() == 3 && (scaling == "dynamic" || scaling == "longrope")) {
    *refusal = fmt::format(
        "its angles follow the length of a text (scaling {}), which the host does not know", scaling);
    return nullptr;
  }
  const Rope rope(query.attrs, query.in[0].dims[1]);
  if (rope.dims / 2 > kMostPairs) {
    *refusal = fmt::format("it turns {} columns of a head, the device at most {}", rope.dims, 2 * kMostPairs);
    return nullptr;
  }
  RopeArgs a{};
  a.width = query.in[0].dims[1], a.seq = rope.seq;
  a.heads = static_cast<int32_t>(rope.heads), a.depth = static_cast<int32_t>(rope.depth);
  a.pairs = static_cast<int32_t>(rope.dims / 2);
  a.period = static_cast<int32_t>(rope.period), a.rotated = static_cast<int32_t>(rope.rotated);
  a.interleaved = rope.interleaved;
  a.magnitude = rope.magnitude;
  for (int i = 0; i < a.pairs; ++i) a.turns[i] = rope.frequency(i) / std::numbers::pi;
  return made([=](Launcher& launcher, const Arguments& c) {
    RopeArgs own = a;
    own.x = operand(c.in[0]);
    own.y = operand(c.out[0]);
    own.positions = c.in.size() >= 2 ? c.in[1].as<int32_t>() : nullptr;
    own.rows = c.in[0].dims[0];
    const bool whole = 2 * a.pairs == a.depth && a.rotated >= a.period;
    if (!whole) copy_bytes(launcher, c.in[0].data, c.out[0].data, c.in[0].bytes());
    start(launcher, "rope", {blocks(own.rows * own.pairs, kThreads)}, {kThreads}, own);
  });
}

constexpr KernelRow kRows[] = {{"rope", make_rope}};

}  // namespace

std::span<const KernelRow> rope_rows() { return kRows; }

}  // namespace ds::cuda
