// Problem: every element of every parameter needs an owner that all ZeRO stages, optimizers and
// checkpoints agree on. Algorithm: parameters are assigned in their order. For each combination of
// properties on which the parameters of a bucket must agree, one bucket is open. A parameter that
// does not fit into the open bucket opens the next one. Parameters begin at multiples of the
// granule, and buckets are padded to the same number of whole granules for each rank. So a cut
// between ranks never splits a granule, which has one norm and one scale. Cost: O(parameters * log
// buckets).
#include "core/program/granules.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "core/base/error.h"
#include "core/base/name.h"
#include "core/base/round.h"

namespace ds {
namespace {

// An empty parameter gets one granule of padding, so that no bucket is empty.
int64_t padded_numel(int64_t numel, int64_t granule) {
  return std::max(granule, round_up(numel, granule));
}

// The buckets under construction. For each combination of properties on which the parameters of a
// bucket agree, one bucket is open for small parameters and one for the current scope of large
// parameters.
class Packer {
 public:
  Packer(const IdVector<ClassId, int>& ranks, int64_t bucket_size)
      : ranks_(ranks), bucket_size_(bucket_size) {}

  void add(ParamId param, const ParamSpec& spec, bool small) {
    std::string scope = small ? "small" : scope_of(spec.name).name;
    bool matrices = spec.rows > 0;
    const Kind kind{spec.frozen, matrices, spec.dtype, spec.granule, spec.cls};
    BucketId& open = open_[{small, kind}];
    std::string& large_scope = large_scope_[kind];
    int64_t padded = padded_numel(spec.numel, spec.granule);
    bool fits =
        open.exists() && (small || scope == large_scope) && at(open).numel + padded <= bucket_size_;
    BucketId target = layout.buckets.past();
    if (fits && !spec.alone) target = open;
    if (target != open) {
      // The first bucket of a scope of large parameters has the name of the scope; every other
      // bucket has a name with a number.
      int count = counts_[scope]++;
      std::string name = count == 0 && !small ? scope : scope + "#" + std::to_string(count);
      layout.buckets.push_back({std::move(name),
                                {},
                                0,
                                small,
                                spec.frozen,
                                spec.granule,
                                spec.cls,
                                ranks_[spec.cls],
                                matrices,
                                spec.dtype});
    }
    if (!spec.alone) {
      open = target;
      if (!small) large_scope = scope;
    }
    Bucket& bucket = at(target);
    layout.bucket_of.push_back(target);
    layout.place_of.push_back(bucket.params.size());
    bucket.params.push_back({param, bucket.numel, spec.numel});
    bucket.numel += padded;
  }

  // Records a parameter that this rank does not hold.
  void leave_out() {
    layout.bucket_of.push_back(none);
    layout.place_of.push_back(0);
  }

  void finish() {
    for (Bucket& bucket : layout.buckets)
      bucket.numel = round_up(bucket.numel, bucket.ranks * bucket.granule);
  }

  Layout layout;

 private:
  // What the parameters of a bucket have in common: frozen, matrices, type, granule and class.
  using Kind = std::tuple<bool, bool, DType, int64_t, ClassId>;

  Bucket& at(BucketId bucket) { return layout.buckets[bucket]; }

  const IdVector<ClassId, int>& ranks_;
  int64_t bucket_size_;
  // The open buckets of small and of large parameters, by kind.
  std::map<std::pair<bool, Kind>, BucketId> open_;
  // The scopes of the open buckets of large parameters, by kind.
  std::map<Kind, std::string> large_scope_;
  std::map<std::string, int> counts_;
};

}  // namespace

std::vector<std::pair<int64_t, int64_t>> Bucket::padding() const {
  std::vector<std::pair<int64_t, int64_t>> gaps;
  int64_t at = 0;
  for (const ParamPlace& p : params) {
    if (p.begin > at) gaps.emplace_back(at, p.begin - at);
    at = p.begin + p.numel;
  }
  if (numel > at) gaps.emplace_back(at, numel - at);
  return gaps;
}

const ParamPlace& Layout::place(ParamId param) const {
  return buckets.at(bucket_of.at(param)).params.at(place_of.at(param));
}

int64_t Layout::numel() const {
  int64_t sum = 0;
  for (const Bucket& b : buckets) sum += b.numel;
  return sum;
}

Layout make_layout(const IdVector<ParamId, ParamSpec>& params, const IdVector<ClassId, int>& ranks,
                   int64_t bucket_size, int64_t persistence_threshold, int64_t most_persistent) {
  for (int n : ranks) require(n > 0, "a class of parameters must have at least 1 rank, got {}", n);
  Packer packer(ranks, bucket_size);
  int64_t persistent = 0;
  for (ParamId p : params.ids()) {
    require(params[p].numel >= 0, "elements of parameter '{}' must be 0 or more, got {}",
            TensorName(params[p].name), params[p].numel);
    require(ranks.has(params[p].cls), "parameter '{}' must be of one of {} classes, got {}",
            TensorName(params[p].name), ranks.size(), params[p].cls);
    require(params[p].granule > 0, "a granule of parameter '{}' must have elements, got {}",
            TensorName(params[p].name), params[p].granule);
    if (params[p].held) {
      bool small = params[p].numel <= std::min(persistence_threshold, most_persistent - persistent);
      if (small) persistent += params[p].numel;
      packer.add(p, params[p], small);
    } else {
      packer.leave_out();
    }
  }
  packer.finish();
  return std::move(packer.layout);
}

}  // namespace ds
