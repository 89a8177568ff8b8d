// Computes how DeepSpeed 0.19.8 lays out parameters over its ranks.
//
// Stages 1 and 2 concatenate the parameters of a group in a flat buffer, pad it to a multiple of 2
// * world elements and cut it into `world` equal slices, regardless of where parameters begin.
// Stage 3 cuts each parameter individually: it is padded to a multiple of `world`, and rank r owns
// the r-th part. Parameters then join a sub-group until one rank's parts in it add up to
// sub_group_size. Source: DeepSpeed's runtime/zero/stage_1_and_2.py, stage3.py and
// partition_parameters.py.
#include "checkpoint/deepspeed/layout.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/base/round.h"

namespace ds {
namespace {

// The flat buffer is padded to a multiple of this many elements for each rank.
constexpr int64_t kFlatUnit = 2;

void check(const std::vector<int64_t>& numel, int64_t world) {
  if (world < 1) raise(DS_ERROR_INVALID_ARGUMENT, "world must be 1 or more, got {}", world);
  for (int64_t n : numel) {
    if (n < 0)
      raise(DS_ERROR_INVALID_ARGUMENT, "a parameter must have 0 or more elements, got {}", n);
  }
}

// Returns the order of the parameters in the buffer. With round robin, parameter i goes to list i
// mod world, and the lists are concatenated.
std::vector<int64_t> order_of(int64_t params, const FlatOptions& options) {
  int64_t lists = options.round_robin ? options.world : 1;
  std::vector<int64_t> order;
  for (int64_t list = 0; list < lists; ++list) {
    for (int64_t i = list; i < params; i += lists) order.push_back(i);
  }
  return order;
}

FlatSlice slice_of(const FlatLayout& layout, const std::vector<int64_t>& numel, int64_t begin,
                   int64_t end) {
  FlatSlice slice{begin, end, 0, {}, 0};
  // The end of the last parameter so far.
  int64_t used = 0;
  for (size_t k = 0; k < layout.order.size(); ++k) {
    int64_t first = layout.offsets[k], last = first + numel[static_cast<size_t>(layout.order[k])];
    used = std::max(used, last);
    bool begins = first >= begin && first < end, reaches = first < begin && last > begin;
    if (reaches) slice.first_offset = begin - first;
    if (begins || reaches) slice.params.push_back(layout.order[k]);
  }
  slice.padding = std::clamp(end - used, int64_t{0}, end - begin);
  return slice;
}

}  // namespace

FlatLayout flat_layout(const std::vector<int64_t>& numel, const FlatOptions& options) {
  check(numel, options.world);
  if (options.align < 1)
    raise(DS_ERROR_INVALID_ARGUMENT, "align must be 1 or more, got {}", options.align);
  FlatLayout layout;
  layout.order = order_of(static_cast<int64_t>(numel.size()), options);
  int64_t end = 0;
  for (int64_t param : layout.order) {
    layout.offsets.push_back(round_up(end, options.align));
    end = layout.offsets.back() + numel[param];
  }
  layout.numel = round_up(end, kFlatUnit * options.world);
  int64_t size = layout.numel / options.world;
  for (int64_t r = 0; r < options.world; ++r) {
    layout.slices.push_back(slice_of(layout, numel, r * size, (r + 1) * size));
  }
  return layout;
}

int64_t SlicedParam::valid(int64_t rank) const {
  return std::clamp(numel - begin(rank), int64_t{0}, partition_numel);
}

SlicedLayout sliced_layout(const std::vector<std::vector<int64_t>>& groups,
                           const SliceOptions& options) {
  SlicedLayout layout;
  int64_t persistent = 0;
  for (size_t g = 0; g < groups.size(); ++g) {
    check(groups[g], options.world);
    layout.groups.emplace_back();
    bool open = false;
    for (size_t i = 0; i < groups[g].size(); ++i) {
      int64_t numel = groups[g][i], aligned = round_up(numel, options.world),
              part = aligned / options.world;
      // A parameter is persistent if it is small and all persistent parameters together stay within
      // the limit for the model.
      bool keep = numel <= options.persistence_threshold &&
                  numel <= options.model_persistence_threshold - persistent;
      if (keep) persistent += numel;
      layout.groups.back().push_back({numel, part, aligned, keep});
      if (!open) layout.sub_groups.push_back({static_cast<int64_t>(g), {}, 0});
      SlicedSubGroup& group = layout.sub_groups.back();
      group.params.push_back(static_cast<int64_t>(i));
      group.numel += part;
      // The parameter with which the sub-group reaches the limit is its last one.
      open = group.numel < options.sub_group_size;
    }
  }
  return layout;
}

}  // namespace ds
