#include "zero/policy.h"

#include <bit>

#include "core/base/error.h"
#include "optim/optimizer.h"

namespace ds {

Policy make_policy(const ZeroConfig& zero) {
  require(zero.stage >= 0 && zero.stage <= 3, "zero_optimization.stage must be 0 to 3, got {}", zero.stage);
  Policy p;
  p.partition_states = zero.stage >= 1;
  p.partition_grads = zero.stage >= 2;
  p.partition_params = zero.stage >= 3;
  p.state_tier = zero.optimizer_tier;
  p.param_tier = zero.stage >= 3 ? zero.param_tier : Tier::device;
  return p;
}

int64_t ZeroPlan::part(size_t bucket) const {
  const Bucket& b = layout.buckets[bucket];
  return policy.partition_states ? b.shard(world) : b.numel;
}

int ZeroPlan::grad_top() const { return tree ? std::bit_width(static_cast<uint64_t>(accumulation)) - 1 : 0; }

BufferId ZeroPlan::add(std::string name, DType dtype, int64_t numel, Tier tier) {
  buffers.push_back({std::move(name), dtype, numel, tier, Residency::persistent, -1});
  return static_cast<BufferId>(buffers.size() - 1);
}

namespace {

// Where a bucket's parameters live.
BucketState make_params(ZeroPlan& plan, size_t index) {
  const Bucket& bucket = plan.layout.buckets[index];
  const Policy& policy = plan.policy;
  int64_t shard = bucket.shard(plan.world), part = plan.part(index);
  int64_t part_first = policy.partition_states ? plan.rank * shard : 0;
  BucketState s;
  s.partitioned = policy.partition_params && !bucket.persistent;
  if (s.partitioned) {
    s.param = {plan.add(bucket.name + ".param", plan.compute, shard, policy.param_tier), 0, shard};
  } else {
    s.full = plan.add(bucket.name + ".param", plan.compute, bucket.numel, Tier::device);
    s.param = {s.full, part_first, part};
  }
  s.master = s.param;
  return s;
}

// The same with what training keeps beside them.
BucketState make_state(ZeroPlan& plan, const Optimizer& optimizer, size_t index) {
  const Bucket& bucket = plan.layout.buckets[index];
  const Policy& policy = plan.policy;
  int64_t shard = bucket.shard(plan.world), part = plan.part(index);
  BucketState s = make_params(plan, index);
  // In f32 on the device the parameter is its own master.
  bool own_master = plan.compute == DS_DTYPE_F32 && policy.state_tier == Tier::device &&
                    plan.buffers[static_cast<size_t>(s.param.buffer)].tier == Tier::device;
  if (!own_master) {
    s.master = {plan.add(bucket.name + ".master", DS_DTYPE_F32, part, policy.state_tier), 0, part};
  }
  for (const std::string& state : optimizer.states) {
    s.states.push_back({plan.add(bucket.name + "." + state, DS_DTYPE_F32, part, policy.state_tier), 0, part});
  }
  int64_t grad = policy.partition_grads ? shard : bucket.numel;
  for (int level = 0; level <= plan.grad_top(); ++level) {
    std::string name = bucket.name + ".grad" + (level == 0 ? "" : "." + std::to_string(level));
    s.grad.push_back(plan.add(name, DS_DTYPE_F32, grad, policy.state_tier));
  }
  s.grad_first = policy.partition_grads || !policy.partition_states ? 0 : plan.rank * shard;
  return s;
}

}  // namespace

ZeroPlan make_zero_plan(const Config& config, const std::vector<ParamSpec>& params, int rank, int world,
                        bool training) {
  ZeroPlan plan;
  plan.rank = rank;
  plan.world = world;
  plan.accumulation = config.accumulation;
  plan.tree = config.reproducible;
  plan.compute = config.compute;
  plan.policy = make_policy(config.zero);
  if (!training && config.zero.stage < 3) plan.policy = {};  // nothing but states and gradients is cut
  plan.layout =
      make_layout(params, world, config.zero.reduce_bucket_size, config.zero.param_persistence_threshold);
  plan.scalars = plan.add(kScalarBlock, DS_DTYPE_U8, 256, Tier::device);
  if (!training) {
    for (size_t b = 0; b < plan.layout.buckets.size(); ++b) plan.buckets.push_back(make_params(plan, b));
    return plan;
  }
  const Optimizer& optimizer = optimizer_of(config.optimizer);
  int64_t granules = 0;
  for (size_t b = 0; b < plan.layout.buckets.size(); ++b) {
    plan.buckets.push_back(make_state(plan, optimizer, b));
    plan.buckets.back().norm_first = granules;
    granules += plan.part(b) / kGranule;
  }
  Tier near = plan.policy.state_tier == Tier::device ? Tier::device : Tier::host;
  plan.norms = plan.add("norms", DS_DTYPE_F64, granules, near);
  return plan;
}

}  // namespace ds
