#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/attrs.h"
#include "core/base/dtype.h"
#include "core/base/element_run.h"
#include "core/device/scalars.h"
#include "core/device/thread_team.h"
#include "core/device/view.h"
#include "core/graph/custom_op.h"

namespace ds {

// The arguments of one launch. `in` and `out` follow the op's row in docs/reference/ops.md, and
// symbolic dimensions have their actual values. A kernel must write every element of `out` (also
// those documented as 0), must not read `out` unless the row says so, and must not allocate, apart
// from what KernelImpl::prepare announces. (In the reference, pack_top and lamb_scales allocate
// small arrays.) The bits of its results may depend on shapes, but not on the size of the team.
struct KernelContext {
  std::span<const TensorView> in;
  std::span<const TensorView> out;
  const Attrs& attrs;
  const StepScalars& scalars;
  // The index of the leaf, micro_step * world + rank, of the running micro-step; 0 in an update.
  int64_t leaf;
  ThreadTeam& team;
  // For an instruction that processes elements in an order other than that of memory: the runs of
  // elements in this order. Otherwise empty.
  std::span<const ElementRun> runs = {};
  // The callbacks of a custom operation; null for every other op.
  const CustomOp* custom = nullptr;
};
using KernelFn = void (*)(const KernelContext&);

// The properties of a future launch by which an implementation decides whether it can run it.
struct KernelQuery {
  std::string_view op;
  std::span<const DType> in;
  std::span<const DType> out;
  const Attrs& attrs;
  // Device::kernels() of the device that is to run the launch.
  std::string_view device = "cpu";
};

// One implementation of one op. `refuse` returns "" to accept a launch, or the reason for a
// refusal, which must not depend on data. If `refuse` is null, every launch is accepted.
struct KernelImpl {
  std::string op;
  // The family: "gemm", "onednn", "cpu" or "ref".
  std::string name;
  KernelFn run = nullptr;
  std::string (*refuse)(const KernelQuery&) = nullptr;
  // Allocates in advance the memory that `run` would otherwise allocate at its first launch with
  // these shapes and keep. The views have no data. Returns the largest number of bytes that one
  // launch allocates and frees again. Null if `run` allocates nothing.
  int64_t (*prepare)(const KernelContext&) = nullptr;
  // The kind of device on which `run` runs.
  std::string device = "cpu";
};

// The implementations of all ops, in order of registration: fastest first, reference last.
class KernelRegistry {
 public:
  void add(KernelImpl impl);
  // Returns the first implementation that accepts. If none does, throws DS_ERROR_UNSUPPORTED with
  // all refusals.
  const KernelImpl& find(const KernelQuery& query) const;
  // Returns one line for each implementation of the op: its name, and whether it accepts the query
  // or why not.
  std::vector<std::string> explain(const KernelQuery& query) const;
  const std::vector<KernelImpl>& all() const { return impls_; }

 private:
  std::vector<KernelImpl> impls_;
};

// Add the families: kernels/gemm (products of bf16, on x86-64 only), kernels/onednn, kernels/cpu,
// and kernels/ref (every op and instruction, in f32, bf16, f16 and f64).
void register_gemm(KernelRegistry& registry);
void register_onednn(KernelRegistry& registry);
void register_cpu(KernelRegistry& registry);
void register_ref(KernelRegistry& registry);

// Returns all built-in implementations in dispatch order: gemm, onednn, cpu, ref. The environment
// variable DS_KERNELS restricts the families, for tests and bug reports; it is a comma-separated
// list such as "ref" or "cpu,ref".
KernelRegistry built_in_kernels();

}  // namespace ds
