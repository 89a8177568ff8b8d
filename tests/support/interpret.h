#pragma once
#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include "core/device/scalars.h"
#include "core/device/thread_team.h"
#include "core/graph/graph.h"
#include "kernels/kernel.h"

namespace ds::test {

// A dense tensor that owns 64-byte aligned memory, at first zero.
class Tensor {
 public:
  Tensor() = default;
  Tensor(DType dtype, std::vector<int64_t> dims);
  Tensor(const TensorType& type, int64_t n);  // the shape with the symbol replaced by n

  DType dtype() const { return dtype_; }
  const std::vector<int64_t>& dims() const { return dims_; }
  int64_t numel() const;
  std::span<std::byte> bytes();
  std::span<const std::byte> bytes() const;
  // Element e as f64; set rounds to the element type.
  double at(int64_t e) const;
  void set(int64_t e, double x);
  void poison();  // all bits 1: NaN in every floating type
  TensorView view() const;
  Tensor as(DType dtype) const;  // every element converted; integer tensors stay as they are
  bool operator==(const Tensor& other) const;  // dtype, extents and bytes

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  DType dtype_ = DS_DTYPE_NONE;
  std::vector<int64_t> dims_;
  mutable std::vector<Line> lines_;  // mutable: views of const operands carry a plain pointer
};

// Uniform in [-1, 1), a function of seed and index only; every value is exact in bf16.
Tensor random_tensor(DType dtype, std::vector<int64_t> dims, uint64_t seed);
// i32 in [0, end).
Tensor random_ids(int64_t count, int64_t end, uint64_t seed);

// Rows [first, first + count) of a matrix, or its columns.
Tensor rows_of(const Tensor& all, int64_t first, int64_t count);
Tensor columns_of(const Tensor& all, int64_t first, int64_t count);

// Runs one kernel on operands that exist already.
void launch(const KernelImpl& impl, const Attrs& attrs, std::span<const TensorView> in,
            std::span<const TensorView> out, ThreadTeam& team, const StepScalars& scalars = {},
            int64_t leaf = 0);
// The implementation of `op` named `family` in the registry; throws when there is none.
const KernelImpl& implementation(const KernelRegistry& registry, std::string_view op,
                                 std::string_view family);

// Runs a graph node by node, each with the first implementation that accepts. Inputs and parameters
// are set by the caller; everything else is poisoned, then computed, by run. Graph, registry and
// team outlive it.
class Interpreter {
 public:
  Interpreter(const Graph& graph, const KernelRegistry& registry, ThreadTeam& team, int64_t n);
  void set(ValueId value,
           const Tensor& tensor);  // converted to the value's type; extents must match
  Tensor& at(ValueId value) { return values_.at(value); }
  void run(NodeId end = none);      // nodes [0, end); none: all
  void init_params(uint64_t seed);  // every parameter as init_param draws it
  StepScalars scalars;
  int64_t leaf = 0;

 private:
  const Graph& graph_;
  const KernelRegistry& registry_;
  ThreadTeam& team_;
  IdVector<ValueId, Tensor> values_;
};

}  // namespace ds::test
