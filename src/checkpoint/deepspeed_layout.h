#pragma once
#include <cstdint>
#include <vector>

namespace ds {

// Which elements of which parameters a rank of a DeepSpeed run owns, so that its files can be read
// (DeepSpeed 0.19.8; recorded in tests/data/semantics/zero_flat.json). Parameters are given by
// their numbers of elements, in the order of their group. Elements everywhere.

struct FlatOptions {
  int64_t world = 1;
  bool round_robin = false;  // round_robin_gradients
  int64_t align = 1;         // parameter_alignment: 16 bytes in elements; 1: off
};

// A rank's slice of the flat buffer of stages 1 and 2.
struct FlatSlice {
  int64_t begin = 0, end = 0;
  int64_t padding = 0;  // of its elements, behind the last parameter's end
  std::vector<int64_t>
      params;  // by number: the one that reaches into the slice, then those that begin in it
  int64_t first_offset = 0;  // elements of the first one that earlier slices hold
};

struct FlatLayout {
  int64_t numel = 0;              // padded
  std::vector<int64_t> order;     // parameter numbers as they lie in the buffer
  std::vector<int64_t> offsets;   // where order[k] begins
  std::vector<FlatSlice> slices;  // by rank; equal sizes
};

// One parameter group under stage 1 or 2. Throws DS_ERROR_INVALID_ARGUMENT for a negative size,
// world or alignment below 1.
FlatLayout flat_layout(const std::vector<int64_t>& numel, const FlatOptions& options);

// A parameter under stage 3: each is cut by itself into world slices of partition_numel.
struct SlicedParam {
  int64_t numel = 0, partition_numel = 0, aligned_numel = 0;
  bool persistent = false;
  int64_t begin(int64_t rank) const { return rank * partition_numel; }
  int64_t valid(int64_t rank) const;  // elements of the rank's slice that are not padding
};

struct SliceOptions {
  int64_t world = 1;
  int64_t sub_group_size = 1'000'000'000;
  int64_t persistence_threshold = 100'000;
  int64_t model_persistence_threshold = INT64_MAX;
};

// Parameters of one group that a rank keeps and updates together.
struct SlicedSubGroup {
  int64_t group = 0;
  std::vector<int64_t> params;  // numbers in the group
  int64_t numel = 0;            // of a rank's slices
};

struct SlicedLayout {
  std::vector<std::vector<SlicedParam>> groups;
  std::vector<SlicedSubGroup> sub_groups;
};

SlicedLayout sliced_layout(const std::vector<std::vector<int64_t>>& groups,
                           const SliceOptions& options);

}  // namespace ds
