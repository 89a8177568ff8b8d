#pragma once
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/attrs.h"
#include "core/base/element_run.h"
#include "core/base/group_scalars.h"
#include "core/device/scalars.h"
#include "core/device/view.h"
#include "kernels/cuda/dim3.h"

// Host side of the device's kernels: from an operation and its shapes to starts of device
// functions. Nothing here knows a driver. A start goes to a Launcher: a stream of the driver, or
// lanes of a test (tests/cuda/lane).
namespace ds::cuda {

// One start of a device function: `args` is the one POD argument struct that every entry takes by
// value.
struct Launch {
  const char* entry;
  Dim3 grid, block;
  uint32_t shared_bytes;
  const void* args;
  size_t args_bytes;
};

// Where launches go, in order; `args` is read before launch returns.
class Launcher {
 public:
  virtual void launch(const Launch& launch) = 0;

 protected:
  ~Launcher() = default;
};

// What a kernel is asked for: shapes at their bound, data null.
struct Query {
  std::string_view op;
  std::span<const TensorView> in, out;
  const Attrs& attrs;
  int64_t shared_bytes = std::numeric_limits<int64_t>::max();  // of a block on this device, at most
};

// What one run gets: actual extents, addresses of the device. An empty operand is absent (data
// null, rank 0).
struct Arguments {
  std::span<const TensorView> in, out;
  const StepScalars* scalars = nullptr;  // on the device
  int64_t leaf = 0;
  RunScalars run;                     // `group` is not read; see the next field
  std::optional<GroupScalars> group;  // in place of that of the step
  std::span<const ElementRun> runs;
  void* scratch = nullptr;  // scratch_bytes() of the device, 256-byte aligned
};

class Kernel {
 public:
  virtual ~Kernel() = default;
  virtual int64_t scratch_bytes() const { return 0; }  // enough for every shape up to the bound
  // Enqueues; throws ds::Error for arguments that the query did not promise.
  virtual void run(Launcher& launcher, const Arguments& arguments) const = 0;
};

// A row of the table of kernels. make returns null with the reason in *refusal.
struct KernelRow {
  const char* op;
  std::unique_ptr<Kernel> (*make)(const Query&, std::string* refusal);
};
// The rows of this folder's own kernels. Others (products over cuBLASLt) join by add_kernels,
// before the first make_kernel: each call puts its rows before those that are there.
void add_kernels(std::span<const KernelRow> rows);
std::vector<std::string_view>
kernel_operations();  // each operation of the table once, in its order

// The first row that takes the query; null with every reason in *refusal when none does.
std::unique_ptr<Kernel> make_kernel(const Query& query, std::string* refusal);

}  // namespace ds::cuda
