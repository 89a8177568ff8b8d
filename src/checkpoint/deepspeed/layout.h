#pragma once
#include <cstdint>
#include <vector>

namespace ds {

// Computes which elements of the parameters each rank of a DeepSpeed run owns, so that its files
// can be read. Follows DeepSpeed 0.19.8, as recorded in tests/data/semantics/zero_flat.json.
// Parameters are given by their numbers of elements, in the order of their group. All sizes and
// offsets are in elements.

// The number of ranks, and the settings that determine the layout of stages 1 and 2.
struct FlatOptions {
  // Number of data-parallel ranks.
  int64_t world = 1;
  // The setting round_robin_gradients.
  bool round_robin = false;
  // The setting parameter_alignment (16 bytes in DeepSpeed), in elements; 1 means that it is off.
  int64_t align = 1;
};

// A rank's slice of the flat buffer of stages 1 and 2.
struct FlatSlice {
  int64_t begin = 0, end = 0;
  // Number of elements of the slice after the end of the last parameter.
  int64_t padding = 0;
  // Indices of the parameters in the slice: first the one that began in an earlier slice, if any,
  // then those that begin here.
  std::vector<int64_t> params;
  // Number of elements of the first parameter that are in earlier slices.
  int64_t first_offset = 0;
};

// The flat buffer of one parameter group under stage 1 or 2, and how ranks divide it.
struct FlatLayout {
  // Size of the buffer, including its padding.
  int64_t numel = 0;
  // Indices of the parameters in the order of the buffer.
  std::vector<int64_t> order;
  // Offset at which parameter order[k] begins.
  std::vector<int64_t> offsets;
  // One slice for each rank, all of the same size.
  std::vector<FlatSlice> slices;
};

// Returns the layout of one parameter group under stage 1 or 2. `numel` has the number of elements
// of each parameter. Throws DS_ERROR_INVALID_ARGUMENT if one of them is negative, or if the world
// or the alignment is below 1.
FlatLayout flat_layout(const std::vector<int64_t>& numel, const FlatOptions& options);

// A parameter under stage 3, which is cut individually into `world` slices of partition_numel
// elements.
struct SlicedParam {
  int64_t numel = 0, partition_numel = 0, aligned_numel = 0;
  // Whether DeepSpeed keeps the parameter gathered on every rank: it is small, and the sizes of all
  // such parameters together stay within the model's limit.
  bool persistent = false;
  int64_t begin(int64_t rank) const { return rank * partition_numel; }
  // Returns the number of elements of the rank's slice that are not padding.
  int64_t valid(int64_t rank) const;
};

// The number of ranks, and the configuration keys that determine the layout at stage 3. The
// defaults of the keys are DeepSpeed's.
struct SliceOptions {
  int64_t world = 1;
  int64_t sub_group_size = 1'000'000'000;
  int64_t persistence_threshold = 100'000;
  int64_t model_persistence_threshold = INT64_MAX;
};

// Parameters of one group that a rank stores and updates together.
struct SlicedSubGroup {
  int64_t group = 0;
  // Indices of the parameters in their group.
  std::vector<int64_t> params;
  // Number of elements of one rank's slices of these parameters.
  int64_t numel = 0;
};

// The slices and sub-groups of all parameter groups under stage 3.
struct SlicedLayout {
  std::vector<std::vector<SlicedParam>> groups;
  std::vector<SlicedSubGroup> sub_groups;
};

// Returns the layout of several parameter groups under stage 3.
SlicedLayout sliced_layout(const std::vector<std::vector<int64_t>>& groups,
                           const SliceOptions& options);

}  // namespace ds
