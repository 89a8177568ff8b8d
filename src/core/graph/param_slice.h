#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace ds {

// A block that a local tensor shares with the whole tensor: `rows` runs of `count` elements each.
struct SliceBlock {
  // The offset of the first run in the local tensor, in elements.
  int64_t local = 0;
  // The offset of the first run in the whole tensor, in elements.
  int64_t begin = 0;
  int64_t count = 0;
  int64_t rows = 1;
  // The distance from one run to the next in the local and in the whole tensor, or 0 if there is
  // only one run.
  int64_t local_stride = 0;
  int64_t stride = 0;
  bool operator==(const SliceBlock&) const = default;
};

// The part of a parameter that a rank holds: the given runs of one dimension of the whole tensor,
// one after the other, and everything in the other dimensions. For example, three runs of the
// columns of a fused query, key and value select the columns of some heads, and one run of the
// first dimension of stacked experts selects some experts. Parameters have the ids and names of the
// whole tensors on every rank.
struct ParamSlice {
  struct Run {
    int64_t first = 0;
    int64_t count = 0;
    bool operator==(const Run&) const = default;
  };

  // Shape of the whole tensor.
  std::vector<int64_t> shape;
  // The dimension that is cut; less than the rank of the tensor, or 0 for a scalar.
  size_t dim = 0;
  // Empty if the rank holds nothing of the tensor.
  std::vector<Run> runs;
  // Mesh axes over which the tensor is cut. Ranks that differ only in other axes hold copies. Empty
  // if the tensor is not cut.
  std::vector<std::string> axes;

  static ParamSlice whole(std::vector<int64_t> shape);
  // Throws DS_ERROR_INVALID_ARGUMENT, naming the parameter, if the tensor lacks the dimension, if
  // runs are empty, overlap or exceed the tensor, or if the shape is not possible.
  void check(const std::string& name) const;

  bool cut() const { return !axes.empty(); }
  int64_t whole_numel() const;
  // Returns the number of elements of the local tensor.
  int64_t numel() const;
  std::vector<int64_t> local_shape() const;
  // Covers elements [begin, begin + count) of the local tensor by at most three blocks for each
  // run.
  std::vector<SliceBlock> blocks(int64_t begin, int64_t count) const;

  // These functions express the slice in elements: the whole tensor consists of blocks of stride()
  // elements, and of each block the rank holds element_runs(), in this order.
  int64_t stride() const;
  std::vector<Run> element_runs() const;
  bool operator==(const ParamSlice&) const = default;
};

// Calls visit(local, whole, count) for pieces of a block that are contiguous in both tensors, at
// most `most` elements each.
template <typename Visit>
void for_each_run(const SliceBlock& block, int64_t most, const Visit& visit) {
  for (int64_t row = 0; row < block.rows; ++row) {
    for (int64_t at = 0; at < block.count;) {
      int64_t n = block.count - at < most ? block.count - at : most;
      visit(block.local + row * block.local_stride + at, block.begin + row * block.stride + at, n);
      at += n;
    }
  }
}

}  // namespace ds
