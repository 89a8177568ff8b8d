// Launches of updates by a function of the host: gradients are widened and scaled as the kernels of
// other optimizers scale them, piece by piece, so that a launch needs little memory.
#include "kernels/host_update.h"

#include <algorithm>
#include <cstddef>

#include "core/base/error.h"
#include "core/base/half.h"
#include "kernels/by_type.h"
#include "kernels/formulas/skipped.h"

namespace ds {
namespace {

// The elements of one call; their gradients fill half of a thread's scratch memory.
constexpr int64_t kPiece = ThreadTeam::kScratchBytes / sizeof(float) / 2;

// Writes the mean gradients [first, first + out.size()) of a launch.
void scaled(const KernelContext& c, int64_t first, std::span<float> out) {
  const auto scale = static_cast<float>(c.scalars.grad_scale);
  by_type_among<float, bf16>("callback", c.in[0].dtype, [&](auto type) {
    const auto* from = c.in[0].as<decltype(type)>() + first;
    std::transform(from, from + out.size(), out.begin(),
                   [=](auto grad) { return static_cast<float>(grad) * scale; });
  });
}

void host_update(const KernelContext& c) {
  ensure(c.custom != nullptr, "an update by callback has no callback");
  if (c.scalars.skip != 0) return skip_update(c);
  const auto& host = static_cast<const HostUpdate&>(*c.custom);
  const TensorView& master = c.out.front();
  auto* grads = reinterpret_cast<float*>(c.team.scratch(0).data());
  HostElements elements;
  elements.param = c.scalars.param;
  elements.update = c.scalars.updates + 1;
  elements.numbers = c.scalars.group;
  for (int64_t first = 0; first < master.numel(); first += kPiece) {
    const auto count = static_cast<size_t>(std::min(kPiece, master.numel() - first));
    elements.first = c.scalars.element + first;
    elements.values = {master.as<float>() + first, count};
    elements.grads = {grads, count};
    scaled(c, first, {grads, count});
    elements.states.clear();
    for (size_t k = 1; k + 1 < c.out.size(); ++k)
      elements.states.push_back(c.out[k].as<float>() + first);
    host.update(elements);
  }
  skip_update(c);  // writes param
}

}  // namespace

KernelFn host_update_kernel() { return host_update; }

}  // namespace ds
