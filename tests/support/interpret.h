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

// A dense tensor that owns its memory, which is aligned to 64 bytes and initially zero.
class Tensor {
 public:
  Tensor() = default;
  Tensor(DType dtype, std::vector<int64_t> dims);
  // Creates a tensor of this shape with the symbol n replaced by its value.
  Tensor(const TensorType& type, int64_t n);

  DType dtype() const { return dtype_; }
  const std::vector<int64_t>& dims() const { return dims_; }
  int64_t numel() const;
  std::span<std::byte> bytes();
  std::span<const std::byte> bytes() const;
  // at() returns element e as f64; set() rounds x to the element type.
  double at(int64_t e) const;
  void set(int64_t e, double x);
  // Sets all bits to 1, which is NaN in every floating type.
  void poison();
  TensorView view() const;
  // Returns a copy with every element converted to `dtype`. Integer tensors keep their type.
  Tensor as(DType dtype) const;
  // Compares element types, extents and bytes.
  bool operator==(const Tensor& other) const;

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  DType dtype_ = DS_DTYPE_NONE;
  std::vector<int64_t> dims_;
  // Mutable because views of const operands carry a plain pointer.
  mutable std::vector<Line> lines_;
};

// Returns values uniform in [-1, 1] that depend only on seed and index and are exact in bf16.
Tensor random_tensor(DType dtype, std::vector<int64_t> dims, uint64_t seed);
// Returns i32 values uniform in [0, end).
Tensor random_ids(int64_t count, int64_t end, uint64_t seed);

// Returns rows [first, first + count) of a matrix, or columns in that range.
Tensor rows_of(const Tensor& all, int64_t first, int64_t count);
Tensor columns_of(const Tensor& all, int64_t first, int64_t count);

// Runs one kernel on existing operands.
void launch(const KernelImpl& impl, const Attrs& attrs, std::span<const TensorView> in,
            std::span<const TensorView> out, ThreadTeam& team, const StepScalars& scalars = {},
            int64_t leaf = 0);
// Returns the kernel of `op` that the registry has under `family`; throws if there is none.
const KernelImpl& implementation(const KernelRegistry& registry, std::string_view op,
                                 std::string_view family);

// Runs a graph node by node, each with the first kernel that accepts it. The caller sets inputs and
// parameters; run() fills all other values with NaN before it computes them. Graph, registry and
// team must outlive the interpreter.
class Interpreter {
 public:
  Interpreter(const Graph& graph, const KernelRegistry& registry, ThreadTeam& team, int64_t n);
  // Converts the tensor to the element type of the value. The extents must match.
  void set(ValueId value, const Tensor& tensor);
  Tensor& at(ValueId value) { return values_.at(value); }
  // Runs nodes [0, end), or all nodes by default.
  void run(NodeId end = none);
  // Initializes every parameter as init_param does.
  void init_params(uint64_t seed);
  StepScalars scalars;
  int64_t leaf = 0;

 private:
  const Graph& graph_;
  const KernelRegistry& registry_;
  ThreadTeam& team_;
  IdVector<ValueId, Tensor> values_;
};

}  // namespace ds::test
