// Problem: a rank holds some columns of a matrix, and ZeRO assigns it a range of the elements of
// these columns to update and to write. Files hold whole matrices. Find the elements of the file
// that belong to the range.
//
// Algorithm: treat a tensor that is cut along dimension `dim` as a matrix. A row stands for one
// index into the dimensions before `dim`; its columns are the elements of `dim` and all later
// dimensions. A run is then a range of columns, and the local tensor is the matrix of the columns
// of all runs. A range of the local tensor's elements covers, in each run, the end of a first row,
// whole rows, and the beginning of a last row: three blocks.
//
// Cost: the number of blocks does not depend on the number of rows.
#include "core/graph/param_slice.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"

namespace ds {
namespace {

int64_t product(std::span<const int64_t> extents) {
  return std::accumulate(extents.begin(), extents.end(), int64_t{1}, std::multiplies<>());
}

}  // namespace

ParamSlice ParamSlice::whole(std::vector<int64_t> shape) {
  ParamSlice slice;
  slice.shape = std::move(shape);
  slice.runs = {{0, slice.shape.empty() ? 1 : slice.shape[0]}};
  return slice;
}

void ParamSlice::check(const std::string& name) const {
  require(dim < std::max<size_t>(shape.size(), 1),
          "the slice of parameter '{}' must cut one of {} dimensions, got {}", TensorName(name),
          shape.size(), dim);
  int64_t numel = 1;
  for (int64_t e : shape) {
    bool fits = e >= 0 && !__builtin_mul_overflow(numel, e, &numel);
    require(
        fits,
        "parameter '{}' has an extent of {}, which is negative or makes its size exceed 64 bits",
        TensorName(name), e);
  }
  int64_t extent = shape.empty() ? 1 : shape[dim];
  // In sorted order, a run overlaps no other if it begins at or after the end of the run before it.
  std::vector<Run> sorted = runs;
  std::ranges::sort(sorted, [](const Run& a, const Run& b) { return a.first < b.first; });
  int64_t free = 0;
  for (const Run& run : sorted) {
    bool fits = run.first >= free && run.count > 0 && run.count <= extent - run.first;
    require(
        fits,
        "runs of parameter '{}' must not overlap and must lie within 0 to {}, got {} from {} on",
        TensorName(name), extent - 1, run.count, run.first);
    free = run.first + run.count;
  }
}

int64_t ParamSlice::whole_numel() const { return product(shape); }

int64_t ParamSlice::numel() const { return product(local_shape()); }

// A scalar has no dimension to cut, so a rank that does not have the scalar holds an empty vector.
std::vector<int64_t> ParamSlice::local_shape() const {
  std::vector<int64_t> local = shape;
  int64_t count = 0;
  for (const Run& run : runs) count += run.count;
  if (!local.empty()) {
    local[dim] = count;
  } else if (count == 0) {
    local = {0};
  }
  return local;
}

int64_t ParamSlice::stride() const {
  return shape.empty() ? 1 : product(std::span(shape).subspan(dim));
}

std::vector<ParamSlice::Run> ParamSlice::element_runs() const {
  int64_t unit = shape.empty() ? 1 : product(std::span(shape).subspan(dim + 1));
  std::vector<Run> out;
  for (const Run& run : runs) out.push_back({run.first * unit, run.count * unit});
  return out;
}

std::vector<SliceBlock> ParamSlice::blocks(int64_t begin, int64_t count) const {
  std::vector<SliceBlock> out;
  const int64_t end = begin + count, whole_row = stride();
  const std::vector<Run> parts = element_runs();
  int64_t row = 0, at = 0;
  for (const Run& part : parts) row += part.count;
  if (count == 0 || row == 0) return out;
  // An uncut tensor is one block: local and whole offsets are equal.
  if (parts.size() == 1 && row == whole_row) return {{begin, begin, count}};
  const int64_t top = begin / row, bottom = (end - 1) / row;
  for (const Run& part : parts) {
    size_t first = out.size();
    auto add = [&](const SliceBlock& block) {
      if (block.count == 0 || block.rows == 0) return;
      if (out.size() > first && block.count == part.count && out.back().count == part.count) {
        // Both blocks are whole rows, so they continue each other.
        SliceBlock& above = out.back();
        above.rows += block.rows;
        above.local_stride = row, above.stride = whole_row;
      } else {
        out.push_back(block);
      }
    };
    // Returns the elements of row r of this run that lie within [begin, end).
    auto clipped = [&](int64_t r) -> SliceBlock {
      int64_t from = std::max(begin, r * row + at), to = std::min(end, r * row + at + part.count);
      return {from, r * whole_row + part.first + (from - r * row - at),
              std::max(to - from, int64_t{0})};
    };
    add(clipped(top));
    if (bottom > top) {
      SliceBlock middle = {(top + 1) * row + at, (top + 1) * whole_row + part.first, part.count,
                           bottom - top - 1};
      if (middle.rows > 1) middle.local_stride = row, middle.stride = whole_row;
      add(middle);
      add(clipped(bottom));
    }
    at += part.count;
  }
  return out;
}

}  // namespace ds
