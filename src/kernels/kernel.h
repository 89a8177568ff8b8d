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

// One launch. in and out follow the op's row in docs/reference/ops.md; symbolic dims are already
// actual extents. Kernels write every element of out (also those documented as 0), never read out
// unless the row says so, do not allocate, and give bits that depend on shapes only, not on the
// team's size.
struct KernelContext {
  std::span<const TensorView> in;
  std::span<const TensorView> out;
  const Attrs& attrs;
  const StepScalars& scalars;
  int64_t leaf;  // micro_step * world + rank of the running micro-step; 0 in update
  ThreadTeam& team;
  std::span<const ElementRun> runs =
      {};                            // of an instruction that takes elements in an order of its own
  const CustomOp* custom = nullptr;  // of an operation by callback
};
using KernelFn = void (*)(const KernelContext&);

// What a kernel is asked to run, before it runs.
struct KernelQuery {
  std::string_view op;
  std::span<const DType> in;
  std::span<const DType> out;
  const Attrs& attrs;
  std::string_view device = "cpu";  // Device::kernels() of the device that is to run it
};

// One implementation of one op. refuse returns "" to accept or the reason; it must not depend on
// data.
struct KernelImpl {
  std::string op;
  std::string name;  // "gemm", "onednn", "cpu", "ref"
  KernelFn run = nullptr;
  std::string (*refuse)(const KernelQuery&) = nullptr;
  // Takes now what run would take at its first launch with these shapes and keep; data pointers are
  // null. Returns the most bytes that a launch takes from the heap and gives back. Null: run takes
  // nothing.
  int64_t (*prepare)(const KernelContext&) = nullptr;
  std::string device = "cpu";  // the kind of device that it runs on
};

// Implementation lists: per op in order of registration, fastest first, reference last.
class KernelRegistry {
 public:
  void add(KernelImpl impl);
  // First implementation that accepts; throws DS_ERROR_UNSUPPORTED with every refusal when none
  // does.
  const KernelImpl& find(const KernelQuery& query) const;
  // Why each implementation takes or refuses: one line per implementation, for `libds env` and
  // DS_VERBOSE.
  std::vector<std::string> explain(const KernelQuery& query) const;
  const std::vector<KernelImpl>& all() const { return impls_; }

 private:
  std::vector<KernelImpl> impls_;
};

void register_gemm(KernelRegistry& registry);    // kernels/gemm: products of bf16, on x86-64 alone
void register_onednn(KernelRegistry& registry);  // kernels/onednn
void register_cpu(KernelRegistry& registry);     // kernels/cpu
void register_ref(
    KernelRegistry& registry);  // kernels/ref: every op and instruction, f32, bf16, f16 and f64

// Every built-in implementation in dispatch order: gemm, onednn, cpu, ref. Environment DS_KERNELS
// (comma list of families, for example "ref" or "cpu,ref") restricts it, for tests and bug reports.
KernelRegistry built_in_kernels();

}  // namespace ds
