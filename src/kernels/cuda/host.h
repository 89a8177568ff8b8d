#pragma once
#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include "core/base/error.h"
#include "core/base/round.h"
#include "core/device/view.h"
#include "kernels/cuda/dim3.h"
#include "kernels/cuda/kernel.h"
#include "kernels/cuda/operand.h"

// What the rows of the table are made of: from shapes to launches.
namespace ds::cuda {

using Run = std::function<void(Launcher&, const Arguments&)>;
std::unique_ptr<Kernel> made(Run run, int64_t scratch = 0);

// Whether operands are f32, bf16, f16 or i32; else the reason.
bool takes_floats(const Query& query, std::string* refusal);

inline Operand operand(const TensorView& view) {
  return {view.data, static_cast<int32_t>(view.dtype), 0};
}
// Whether an address may be read by 16 bytes.
bool aligned(const void* data);

// One start with an argument struct. A grid without blocks starts nothing.
template <typename Args>
void start(Launcher& launcher, const char* entry, Dim3 grid, Dim3 block, const Args& args,
           uint32_t shared = 0) {
  static_assert(std::is_trivially_copyable_v<Args>);
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  launcher.launch({entry, grid, block, shared, &args, sizeof args});
}
inline uint32_t blocks(int64_t count, int64_t share) {
  return static_cast<uint32_t>(ceil_div(count, share));
}

// The next `count` elements of type T of a launch's scratch, 256-byte aligned; at null it counts
// bytes.
class Scratch {
 public:
  explicit Scratch(void* data) : data_(static_cast<std::byte*>(data)) {}
  template <typename T>
  T* take(int64_t count) {
    std::byte* at = data_ ? data_ + used_ : nullptr;
    used_ += round_up(count * static_cast<int64_t>(sizeof(T)), int64_t{256});
    return reinterpret_cast<T*>(at);
  }
  int64_t used() const { return used_; }

 private:
  std::byte* data_;
  int64_t used_ = 0;
};

// Rows of each file of this folder.
std::span<const KernelRow> elementwise_rows();
std::span<const KernelRow> activation_rows();
std::span<const KernelRow> update_rows();
std::span<const KernelRow> lamb_rows();
std::span<const KernelRow> step_rows();
std::span<const KernelRow> table_rows();
std::span<const KernelRow> norm_rows();
std::span<const KernelRow> loss_rows();
std::span<const KernelRow> rope_rows();
std::span<const KernelRow> attention_rows();
std::span<const KernelRow> quantize_rows();
std::span<const KernelRow> router_rows();

}  // namespace ds::cuda
