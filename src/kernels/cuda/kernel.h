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

// The host side of the device's kernels, which turns an operation and its shapes into launches of
// device functions. It does not depend on a driver. Launches go to a Launcher: a stream of the
// driver, or the CPU in tests (tests/cuda/lane).
namespace ds::cuda {

// One launch of a device function. `args` is the plain struct that every entry has as its only
// parameter.
struct Launch {
  const char* entry;
  Dim3 grid, block;
  uint32_t shared_bytes;
  const void* args;
  size_t args_bytes;
};

// An executor of launches, which run in the order of the calls. launch() copies `args` before it
// returns.
class Launcher {
 public:
  virtual void launch(const Launch& launch) = 0;

 protected:
  ~Launcher() = default;
};

// A description of the kernel that make_kernel() should create. Shapes are at their bounds, and
// data pointers are null.
struct Query {
  std::string_view op;
  std::span<const TensorView> in, out;
  const Attrs& attrs;
  // The largest shared memory of a block on this device, in bytes.
  int64_t shared_bytes = std::numeric_limits<int64_t>::max();
};

// The arguments of one run of a kernel, with actual extents and device addresses. An absent operand
// has null data and rank 0.
struct Arguments {
  std::span<const TensorView> in, out;
  // The scalars of the step, in device memory.
  const StepScalars* scalars = nullptr;
  int64_t leaf = 0;
  // The scalars of the run of elements. RunScalars::group is not read; `group` below replaces it.
  RunScalars run;
  // If set, replaces StepScalars::group for this launch.
  std::optional<GroupScalars> group;
  // The runs of elements that the launch covers; see KernelContext::runs.
  std::span<const ElementRun> runs;
  // scratch_bytes() bytes of device memory, 256-byte aligned.
  void* scratch = nullptr;
};

// An operation for given types and attributes, which can be run repeatedly.
class Kernel {
 public:
  virtual ~Kernel() = default;
  // Returns the bytes of scratch memory that run() needs, for every shape up to the bound.
  virtual int64_t scratch_bytes() const { return 0; }
  // Enqueues the work. Throws ds::Error for arguments that do not match the query.
  virtual void run(Launcher& launcher, const Arguments& arguments) const = 0;
};

// The types of operands for which a row's `make` is called. With `floats`, these are only f32,
// bf16, f16 and i32. With `own`, they are all types, and `make` itself refuses those that it does
// not support.
enum class Takes : int8_t { floats, own };

// A row of the table of kernels. `make` creates the kernel, or returns null and sets *refusal to
// the reason.
struct KernelRow {
  const char* op;
  std::unique_ptr<Kernel> (*make)(const Query&, std::string* refusal);
  Takes takes = Takes::floats;
};
// Returns the operations of the table, each once, in the order of the rows.
std::vector<std::string_view> kernel_operations();

// Creates the kernel of the first row that accepts the query. If none does, returns null and sets
// *refusal to all reasons.
std::unique_ptr<Kernel> make_kernel(const Query& query, std::string* refusal);

}  // namespace ds::cuda
