#include "cuda/gpu/runner.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "core/base/error.h"
#include "core/base/round.h"

namespace ds::test {
namespace {

constexpr std::byte kGuard{0xa5};
// Guard bytes before and after every operand.
constexpr int64_t kGap = 256;

// The operands of a launch, laid out one after the other, equally on host and device.
class Layout {
 public:
  int64_t add(int64_t bytes) {
    const int64_t at = round_up(static_cast<int64_t>(bytes_.size()), kGap) + kGap;
    bytes_.resize(static_cast<size_t>(at + bytes + kGap), kGuard);
    return at;
  }
  std::vector<std::byte>& bytes() { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

struct Operand {
  TensorView host;
  // The offset in the layout, or -1 if the operand is absent.
  int64_t at = -1, bytes = 0;
};

Operand place(Layout& layout, const TensorView& view) {
  Operand out{view, -1, 0};
  if (!view.data) return out;
  out.bytes = view.bytes();
  out.at = layout.add(out.bytes);
  std::memcpy(layout.bytes().data() + out.at, view.data, static_cast<size_t>(out.bytes));
  return out;
}

TensorView moved(const Operand& operand, std::byte* base) {
  TensorView view = operand.host;
  view.data = operand.at < 0 ? nullptr : base + operand.at;
  return view;
}

void run_on_device(Session& session, const KernelContext& c, const std::string& op, bool load) {
  Device& device = session.device();
  Layout layout;
  std::vector<Operand> in, out;
  for (const TensorView& view : c.in) in.push_back(place(layout, view));
  for (const TensorView& view : c.out) out.push_back(place(layout, view));
  const int64_t scalars = layout.add(256);
  std::memcpy(layout.bytes().data() + scalars, &c.scalars, sizeof c.scalars);
  const std::vector<std::byte> before = layout.bytes();
  const auto all = static_cast<int64_t>(before.size());

  std::shared_ptr<Arena> arena = device.make_arena(Device::Place::device, all);
  std::byte* const base = arena->address();
  device.copy(base, before.data(), all);
  std::vector<TensorView> in_views, out_views;
  for (const Operand& operand : in) in_views.push_back(moved(operand, base));
  for (const Operand& operand : out) out_views.push_back(moved(operand, base));
  std::unique_ptr<DeviceQueue> busy;
  std::unique_ptr<Kernel> kernel =
      session.queue().make_kernel({op, in_views, out_views, c.attrs, c.runs});
  std::shared_ptr<Arena> ballast;
  if (load) {
    const int64_t bytes = session.small() ? 1 << 16 : 64 << 20;
    busy = device.make_queue("busy");
    ballast = device.make_arena(Device::Place::device, bytes);
    for (int i = 0; i < (session.small() ? 4 : 40); ++i) busy->fill(ballast->address(), i, bytes);
  }
  const auto* block = reinterpret_cast<const StepScalars*>(base + scalars);
  session.queue().launch(
      *kernel,
      {in_views, out_views, block, c.leaf, {0, c.scalars.param, c.scalars.element, nullptr}});
  session.finish();
  std::vector<std::byte> after(before.size());
  device.copy(after.data(), base, all);
  if (busy) busy->finish();

  for (const Operand& operand : out) {
    if (operand.at < 0) continue;
    std::memcpy(operand.host.data, after.data() + operand.at, static_cast<size_t>(operand.bytes));
    std::copy_n(before.begin() + operand.at, operand.bytes, after.begin() + operand.at);
  }
  auto differ = std::mismatch(before.begin(), before.end(), after.begin());
  ensure(differ.first == before.end(), "{}: wrote outside of its results, at byte {} of {}", op,
         differ.first - before.begin(), all);
}

// Arguments for the kernel function, which has no context: KernelFn is a plain function pointer.
Session* current = nullptr;
std::string current_op;

}  // namespace

KernelImpl device_kernel(Session& session, const std::string& op) {
  current = &session;
  current_op = op;
  return {op, "device",
          [](const KernelContext& c) { run_on_device(*current, c, current_op, false); }};
}

KernelImpl device_kernel_under_load(Session& session, const std::string& op) {
  KernelImpl impl = device_kernel(session, op);
  impl.run = [](const KernelContext& c) { run_on_device(*current, c, current_op, true); };
  return impl;
}

}  // namespace ds::test
