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

// Helpers for the rows of the table of kernels, which turn an operation and its shapes into
// launches.
namespace ds::cuda {

using Run = std::function<void(Launcher&, const Arguments&)>;
// Creates a kernel that calls `run` and has `scratch` bytes of scratch memory, which must be enough
// for every shape up to the bound.
std::unique_ptr<Kernel> made(Run run, int64_t scratch = 0);

// Returns whether all operands and results are f32, bf16, f16 or i32. If not, sets *refusal to the
// reason.
bool takes_floats(const Query& query, std::string* refusal);

inline Operand operand(const TensorView& view) {
  return {view.data, static_cast<int32_t>(view.dtype), 0};
}
// Returns whether the address is a multiple of 16 bytes.
bool aligned(const void* data);

// Launches an entry with an argument struct. A grid without blocks launches nothing.
template <typename Args>
void start(Launcher& launcher, const char* entry, Dim3 grid, Dim3 block, const Args& args,
           uint32_t shared = 0) {
  static_assert(std::is_trivially_copyable_v<Args>);
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  launcher.launch({entry, grid, block, shared, &args, sizeof args});
}
// Returns the number of blocks for `count` elements, at `share` elements per block.
inline uint32_t blocks(int64_t count, int64_t share) {
  return static_cast<uint32_t>(ceil_div(count, share));
}

// The scratch memory of a launch, which take() divides: it returns the next `count` elements of
// type T, 256-byte aligned. A Scratch constructed with null only adds up the bytes, which is how a
// kernel computes its scratch_bytes().
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

// Each function returns the rows of one file of this folder.
using Rows = std::span<const KernelRow>();
Rows elementwise_rows, activation_rows, update_rows, lamb_rows, step_rows, table_rows, norm_rows,
    loss_rows, rope_rows, attention_rows, quantize_rows, router_rows;

}  // namespace ds::cuda
