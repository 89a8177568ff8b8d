#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/graph/graph.h"

namespace ds {

using BucketId = Id<struct BucketTag>;
using ClassId = Id<struct ClassTag>;  // of parameters that are reduced over the same ranks

// The unit of ownership and norms is a granule: consecutive elements of one parameter, zero-padded;
// as many as its bucket says, by default these. The codes of quantization are always of so many
// (core/program/codes.h).
inline constexpr int64_t kGranule = 256;

// A parameter as the layout sees it.
struct ParamSpec {
  std::string name;
  int64_t numel = 0;
  bool frozen = false;         // not trained, as far as is known
  bool alone = false;          // shares its bucket with none
  int64_t granule = kGranule;  // elements that stay together
  bool held = true;            // by this rank: it has a place
  // Axes of the mesh over which its gradients are summed; none: those of `data`.
  std::vector<std::string> reduced_over = {};
  ClassId cls{0};
  int32_t group = 0;  // whose values its updates have, as far as is known
  // Of a parameter that is updated matrix by matrix (optim/optimizer.h, MatrixUpdate): its last
  // dimensions.
  int64_t rows = 0, cols = 0;
};

// Place of a parameter inside its bucket, in elements. begin is a multiple of the granule.
struct ParamPlace {
  ParamId param;
  int64_t begin = 0;
  int64_t numel = 0;
};

// Parameters of one class that are gathered, reduced and updated together: padded to granules,
// concatenated, padded to as many granules as the class has ranks, cut evenly between granules:
// rank r of them owns elements [r * shard, (r + 1) * shard).
struct Bucket {
  std::string name;
  std::vector<ParamPlace> params;
  int64_t numel = 0;        // padded; a multiple of ranks * granule
  bool persistent = false;  // small parameters: never partitioned in stage 3
  bool frozen = false;  // of parameters that were made frozen: has no states until one is trained
  int64_t granule = kGranule;
  ClassId cls{0};
  int ranks = 1;          // of the class
  bool matrices = false;  // of parameters that are updated matrix by matrix
  int64_t shard() const { return numel / ranks; }
  // Gaps that no parameter fills, as (begin, numel).
  std::vector<std::pair<int64_t, int64_t>> padding() const;
};

// Who owns what: one layout for all ZeRO stages.
struct Layout {
  IdVector<BucketId, Bucket> buckets;
  IdVector<ParamId, BucketId> bucket_of;  // none: this rank does not hold the parameter
  IdVector<ParamId, size_t> place_of;     // in its bucket's params

  const ParamPlace& place(ParamId param) const;
  int64_t numel() const;  // padded elements of all buckets
};

// Parameters of at most persistence_threshold elements share buckets over the whole model; larger
// ones share a bucket with their neighbours of the same scope (the name up to its first number:
// "h.3"); frozen ones share none with others, those of another class or granule, or of another kind
// of update neither, and those that are alone none at all. A bucket is cut before it exceeds
// bucket_size elements. A parameter that would bring the small ones above most_persistent elements
// in all counts as a larger one. ranks: of each class.
Layout make_layout(const IdVector<ParamId, ParamSpec>& params, const IdVector<ClassId, int>& ranks,
                   int64_t bucket_size, int64_t persistence_threshold,
                   int64_t most_persistent = INT64_MAX);

}  // namespace ds
