#include "zero/zero_plan.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <utility>

namespace ds {

int64_t ZeroPlan::part_numel(BucketId bucket, int cut) const {
  return layout.buckets[bucket].numel / levels(bucket).ways(cut);
}

int64_t ZeroPlan::part_first(BucketId bucket, int cut) const {
  return levels(bucket).part_of(rank, cut) * part_numel(bucket, cut);
}

bool ZeroPlan::trains(BucketId bucket) const {
  const std::vector<ParamPlace>& params = layout.buckets[bucket].params;
  return std::any_of(params.begin(), params.end(),
                     [&](const ParamPlace& p) { return !trained.frozen[p.param]; });
}

// A bucket gets its accumulators together with its states.
bool ZeroPlan::has_states(BucketId bucket) const { return !buckets[bucket].grad.empty(); }

std::vector<ParamPlace> ZeroPlan::trained_params(BucketId bucket) const {
  std::vector<ParamPlace> out;
  for (const ParamPlace& p : layout.buckets[bucket].params) {
    if (!trained.frozen[p.param]) out.push_back(p);
  }
  return out;
}

std::vector<ElementRun> places_of(std::span<const ParamPlace> params) {
  std::vector<ElementRun> out;
  for (const ParamPlace& p : params) out.push_back({p.begin, p.begin + p.numel});
  return out;
}

const RowTable* ZeroPlan::table(BucketId bucket) const {
  for (const RowTable& t : tables) {
    if (layout.bucket_of[t.param] == bucket) return &t;
  }
  return nullptr;
}

int ZeroPlan::grad_top() const {
  return tree ? std::bit_width(static_cast<uint64_t>(accumulation)) - 1 : 0;
}

// Only cut parameters travel as codes, so the bits of weights depend on the thresholds that keep
// small parameters whole. Gradients are quantized once at each level, so their bits depend on the
// groups of all levels; tables are never quantized.
std::string ZeroPlan::quantization_key(const ZeroConfig& zero) const {
  std::string key;
  if (quantization.weights > 0)
    key += fmt::format(" weights int{} above {} or beyond {}", quantization.weights,
                       zero.param_persistence_threshold, zero.model_persistence_threshold);
  if (quantization.gradients == 0) return key;
  key += fmt::format(" gradients int{} over", quantization.gradients);
  for (const ParamClass& c : classes) {
    for (int level = 0; level < c.levels.depth(); ++level)
      key += " " + c.levels.group(level).name();
  }
  if (quantization.feedback)
    key += fmt::format(" feedback {} {}", quantization.err_beta, quantization.reset);
  for (const RowTable& t : tables) key += " but " + t.name;
  return key;
}

const HeldState* BucketState::find(std::string_view name, int level) const {
  const HeldState* found = nullptr;
  for_each([&](const HeldState& s) {
    if (s.row.name == name && s.level == level) found = &s;
  });
  return found;
}

BufferId ZeroPlan::joint_buffer(std::string_view name) const {
  auto at = std::find_if(joint.begin(), joint.end(),
                         [&](const HeldState& s) { return s.row.name == name; });
  return at == joint.end() ? BufferId() : at->ref.buffer;
}

StateRef ZeroPlan::coefficients(int64_t kind) const {
  const auto params = static_cast<int64_t>(layout.bucket_of.size());
  return {joint_buffer(kCoefficients), kind * params, params};
}

}  // namespace ds
