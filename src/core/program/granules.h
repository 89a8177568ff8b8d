#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/base/dtype.h"
#include "core/graph/graph.h"

namespace ds {

using BucketId = Id<struct BucketTag>;
// A class of parameters whose gradients are reduced over the same ranks.
using ClassId = Id<struct ClassTag>;

// A granule is the unit of ownership and norms: consecutive elements of one parameter, zero-padded.
// A bucket sets the length of its granules; kGranule is the default. Quantization always uses
// granules of kGranule elements (core/program/codes.h).
inline constexpr int64_t kGranule = 256;

// The properties of a parameter on which the layout depends.
struct ParamSpec {
  std::string name;
  int64_t numel = 0;
  // Whether the parameter is frozen when the layout is made. It may be trained later.
  bool frozen = false;
  // Whether the parameter has a bucket of its own.
  bool alone = false;
  // The number of consecutive elements that stay together on one rank.
  int64_t granule = kGranule;
  // Whether this rank holds the parameter, so that it needs a place.
  bool held = true;
  // Axes of the mesh over which the gradients are summed. If empty, the axes of `data`.
  std::vector<std::string> reduced_over = {};
  ClassId cls{0};
  // Index of the optimizer's parameter group when the layout is made. Its settings apply to
  // updates.
  int32_t group = 0;
  // The type in which programs compute with the parameter; DS_DTYPE_NONE means the compute type.
  DType dtype = DS_DTYPE_NONE;
  // The last two dimensions of a parameter that is updated matrix by matrix (optim/optimizer.h,
  // MatrixUpdate); 0 for other parameters.
  int64_t rows = 0, cols = 0;
};

// The place of a parameter inside its bucket, in elements. begin is a multiple of the granule.
struct ParamPlace {
  ParamId param;
  int64_t begin = 0;
  int64_t numel = 0;
};

// Parameters of one class that are gathered, reduced and updated together. Each parameter is padded
// to whole granules. Their concatenation is padded so that every rank of the class gets the same
// number of granules: rank r owns elements [r * shard(), (r + 1) * shard()).
struct Bucket {
  std::string name;
  std::vector<ParamPlace> params;
  // The number of elements with padding, a multiple of ranks * granule.
  int64_t numel = 0;
  // Whether the parameters are small, so that stage 3 never partitions them.
  bool persistent = false;
  // Whether the parameters were frozen when the layout was made. Such a bucket has no states until
  // one of its parameters is trained.
  bool frozen = false;
  int64_t granule = kGranule;
  ClassId cls{0};
  // The number of ranks of the class.
  int ranks = 1;
  // Whether the parameters are updated matrix by matrix.
  bool matrices = false;
  // The type in which programs compute with the parameters.
  DType dtype = DS_DTYPE_NONE;
  int64_t shard() const { return numel / ranks; }
  // Returns the gaps between and after the parameters, as pairs of first element and length.
  std::vector<std::pair<int64_t, int64_t>> padding() const;
};

// The assignment of parameters to buckets, which determines the elements that each rank owns. All
// ZeRO stages use the same layout.
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

// Assigns parameters to buckets. Parameters share a bucket only if they agree in being frozen, in
// type, in class, in granule and in being updated matrix by matrix. A parameter marked `alone` has
// a bucket of its own. A parameter of at most persistence_threshold elements is small, as long as
// all small parameters together have at most most_persistent elements. Small parameters share
// buckets over the whole model. A large parameter shares a bucket only with its neighbours in the
// same scope (scope_of(), such as "h.3"). A bucket with more than one parameter has at most
// bucket_size elements before its final padding. `ranks` holds the number of ranks of each class.
Layout make_layout(const IdVector<ParamId, ParamSpec>& params, const IdVector<ClassId, int>& ranks,
                   int64_t bucket_size, int64_t persistence_threshold,
                   int64_t most_persistent = INT64_MAX);

}  // namespace ds
