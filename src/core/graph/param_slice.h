#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace ds {

// `rows` stretches of `count` elements each that a local tensor has of a whole one.
struct SliceBlock {
  int64_t local = 0;  // where the first begins in the local tensor,
  int64_t begin = 0;  // and in the whole one
  int64_t count = 0;
  int64_t rows = 1;
  int64_t local_stride = 0;  // from one to the next; 0 where there is one
  int64_t stride = 0;
  bool operator==(const SliceBlock&) const = default;
};

// What a rank holds of a parameter: of one dimension of the whole tensor the given runs, which its
// local tensor has one behind the other, and all of the other dimensions. Three runs of the columns
// of a fused query, key and value are the columns of some heads; one run of the first dimension of
// stacked experts is some experts. Ids, names and shapes of parameters are those of the whole
// tensors on every rank.
struct ParamSlice {
  struct Run {
    int64_t first = 0;
    int64_t count = 0;
    bool operator==(const Run&) const = default;
  };

  std::vector<int64_t> shape;  // of the whole tensor
  size_t dim = 0;              // below the rank of a cut tensor
  std::vector<Run> runs;       // none: the rank holds nothing of it
  std::vector<std::string>
      axes;  // of the mesh: ranks that differ in others alone hold copies; none: not cut

  static ParamSlice whole(std::vector<int64_t> shape);
  // Throws DS_ERROR_INVALID_ARGUMENT, naming the parameter, for runs outside of the tensor or upon
  // each other, and for a shape that no tensor has.
  void check(const std::string& name) const;

  bool cut() const { return !axes.empty(); }
  int64_t whole_numel() const;
  int64_t numel() const;  // of the local tensor
  std::vector<int64_t> local_shape() const;
  // Elements [begin, begin + count) of the local tensor: at most three blocks a run.
  std::vector<SliceBlock> blocks(int64_t begin, int64_t count) const;

  // The same as elements: of every `stride()` of the whole tensor those of element_runs(), in this
  // order.
  int64_t stride() const;
  std::vector<Run> element_runs() const;
  bool operator==(const ParamSlice&) const = default;
};

// Elements of a block that lie together in both tensors, at most so many at once: visit(local,
// whole, count).
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
