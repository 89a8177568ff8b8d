#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/graph/graph.h"

namespace ds {

using BucketId = Id<struct BucketTag>;
// A class of parameters: their gradients are reduced over the same ranks.
using ClassId = Id<struct ClassTag>;

// The unit of ownership and norms is a granule: consecutive elements of one parameter, zero-padded.
// Its length is set by the bucket; kGranule is the default. The codes of quantization always have
// granules of this length (core/program/codes.h).
inline constexpr int64_t kGranule = 256;

// The properties of a parameter that the layout depends on.
struct ParamSpec {
  std::string name;
  int64_t numel = 0;
  // Whether the parameter is not trained, as far as is known when the layout is made.
  bool frozen = false;
  // Whether the parameter has a bucket of its own.
  bool alone = false;
  // Number of elements that stay together on one rank.
  int64_t granule = kGranule;
  // Whether this rank holds the parameter, so that it needs a place.
  bool held = true;
  // Axes of the mesh over which its gradients are summed; empty: the axes of `data`.
  std::vector<std::string> reduced_over = {};
  ClassId cls{0};
  // Index of the optimizer's parameter group whose settings the updates use, as far as is known
  // when the layout is made.
  int32_t group = 0;
  // For a parameter that is updated matrix by matrix (optim/optimizer.h, MatrixUpdate): its last
  // two dimensions.
  int64_t rows = 0, cols = 0;
};

// The place of a parameter inside its bucket, in elements. begin is a multiple of the granule.
struct ParamPlace {
  ParamId param;
  int64_t begin = 0;
  int64_t numel = 0;
};

// Parameters of one class that are gathered, reduced and updated together. Each is padded to whole
// granules, and they are concatenated and padded so that every rank of the class gets the same
// number of granules: rank r owns elements [r * shard, (r + 1) * shard).
struct Bucket {
  std::string name;
  std::vector<ParamPlace> params;
  // Number of elements with padding, a multiple of ranks * granule.
  int64_t numel = 0;
  // Whether its parameters are small, so that stage 3 never partitions them.
  bool persistent = false;
  // Whether its parameters were frozen from the beginning, so that it has no states until one of
  // them is trained.
  bool frozen = false;
  int64_t granule = kGranule;
  ClassId cls{0};
  // Number of ranks of the class.
  int ranks = 1;
  // Whether its parameters are updated matrix by matrix.
  bool matrices = false;
  int64_t shard() const { return numel / ranks; }
  // Returns the gaps between and after the parameters, as pairs of first element and length.
  std::vector<std::pair<int64_t, int64_t>> padding() const;
};

// Says which rank owns which elements. All ZeRO stages use the same layout.
struct Layout {
  IdVector<BucketId, Bucket> buckets;
  // The bucket of each parameter; `none` if this rank does not hold the parameter.
  IdVector<ParamId, BucketId> bucket_of;
  // The position of each parameter in Bucket::params.
  IdVector<ParamId, size_t> place_of;

  const ParamPlace& place(ParamId param) const;
  // Returns the number of elements of all buckets, with padding.
  int64_t numel() const;
};

// Assigns parameters to buckets. Parameters share a bucket only if they agree in frozen or trained,
// class, granule and kind of update. A parameter marked `alone` has a bucket of its own. Small
// parameters, of at most persistence_threshold elements, share buckets over the whole model, as
// long as all of them together have at most most_persistent elements; a parameter beyond that limit
// is treated as large. A large parameter shares a bucket with neighbours of its scope, which is the
// name up to its first number ("h.3"). A bucket is closed before it exceeds bucket_size elements.
// ranks: the number of ranks of each class.
Layout make_layout(const IdVector<ParamId, ParamSpec>& params, const IdVector<ClassId, int>& ranks,
                   int64_t bucket_size, int64_t persistence_threshold,
                   int64_t most_persistent = INT64_MAX);

}  // namespace ds
