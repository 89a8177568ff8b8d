// Derives a ZeroPlan from a configuration, in steps that each need the previous ones: the classes
// of parameters with their levels and policies, the tables that are reduced as rows (which get
// buckets of their own), the layout, the parameters' buffers, and last, if the plan trains, the
// states. Buffers keep the order in which they are added, so states that are added later, when a
// parameter is thawed, do not move the existing ones.
#include "zero/policy.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/program/mesh.h"
#include "core/program/state.h"
#include "core/program/state_codes.h"
#include "optim/optimizer.h"
#include "zero/rank_counts.h"
#include "zero/state_rows.h"

namespace ds {

Policy make_policy(const ZeroConfig& zero, const RankLevels& levels) {
  require(zero.stage >= 0 && zero.stage <= 3, "zero_optimization.stage must be 0 to 3, got {}",
          zero.stage);
  Policy p;
  int shard = levels.within(zero.mics_shard_size > 0 ? zero.mics_shard_size : levels.ranks());
  p.states = zero.stage >= 1 ? shard : 0;
  p.grads = zero.stage >= 2 ? shard : 0;
  p.params = zero.stage < 3                ? 0
             : zero.hpz_partition_size > 1 ? levels.within(zero.hpz_partition_size)
                                           : shard;
  p.state_tier = zero.optimizer_tier;
  p.param_tier = zero.stage >= 3 ? zero.param_tier : Tier::device;
  return p;
}

RankLevels make_levels(const Config& config, const Mesh& mesh, RankGroup group,
                       const Machine& machine) {
  const ZeroConfig& zero = config.zero;
  int ranks_per_node = machine.ranks_per_node;
  if (config.nodes > 0) {
    check_nodes(config.nodes, mesh.ranks());
    ranks_per_node = mesh.ranks() / static_cast<int>(config.nodes);
  }
  // From here on, `world` and the sizes of blocks count only the ranks of the group. The numbers of
  // these ranks are `stride` apart, so 1 / stride of a node's ranks belong to the group.
  auto [world, stride] = group;
  std::vector<int> blocks{world};
  int64_t shard = zero.shard_group();
  if (shard > world && world < mesh.data_size()) shard = 0;
  if (shard > 0) check_shard_group(zero, world);
  if (shard > 0) blocks.push_back(static_cast<int>(shard));
  auto add = [&, world = world, stride = stride](int ranks) {
    ranks = ranks % stride == 0 ? ranks / stride : 0;
    bool level = ranks > 0 && ranks < world && world % ranks == 0 &&
                 std::has_single_bit(static_cast<uint64_t>(ranks));
    // Blocks inside a shard group are a level only if mics_hierarchical_params_gather is set;
    // otherwise the shard group gathers in one step.
    bool inside = ranks < zero.mics_shard_size;
    if (level && (!inside || zero.mics_hierarchical_gather)) blocks.push_back(ranks);
  };
  add(ranks_per_node);
  if (config.levels == "auto") add(machine.ranks_per_memory_node);
  std::sort(blocks.begin(), blocks.end());
  return RankLevels::of_blocks(std::move(blocks), stride);
}

namespace {

// Adds the buffer of a bucket's parameters: a shard if the bucket is partitioned, else all of it.
// The parameter is its own master until add_states() adds a separate one.
BucketState make_params(ZeroPlan& plan, BucketId index) {
  const Bucket& bucket = plan.layout.buckets[index];
  const Policy& policy = plan.policy(index);
  BucketState s;
  s.partitioned = policy.params > 0 && !bucket.persistent;
  int cut = s.partitioned ? policy.params : 0;
  BufferId held = plan.memory.add(Holds::param, bucket.name + ".param", bucket.dtype,
                                  plan.part_numel(index, cut),
                                  s.partitioned ? policy.param_tier : Tier::device);
  s.full = s.partitioned ? BufferId() : held;
  s.param = {param_row(),
             {held, plan.part_first(index) - plan.part_first(index, cut), plan.part_numel(index)}};
  s.master = {master_row(), s.param.ref};
  return s;
}

// Assigns a place in the norms to each granule of this rank's parts that has states. The first
// buffer has room for the parameters that are trained at the beginning. When it becomes too small,
// a buffer with room for all granules replaces it, so norms move at most once.
void place_norms(ZeroPlan& plan, const Optimizer& optimizer) {
  int64_t granules = 0, all = 0;
  for (BucketId b : plan.buckets.ids()) {
    plan.buckets[b].norm_first = granules;
    if (plan.has_states(b)) granules += plan.granules(b);
    all += plan.granules(b);
  }
  plan.norms_used = granules;
  Tier near = plan.state_tier() == Tier::device ? Tier::device : Tier::host;
  auto place = [&](BufferId& norms, const std::string& name, int64_t each) {
    bool first = !norms.exists();
    if (!first && granules * each <= plan.memory.buffers[norms].numel) return;
    norms = plan.memory.add(Holds::norms, first ? name : name + ".all", DS_DTYPE_F64,
                            each * (first ? granules : all), near);
  };
  place(plan.norms, "norms", 1);
  if (optimizer.by_norms)
    place(plan.update_norms, "update_norms", optimizer.joins_momenta() ? 3 : 2);
}

// Creates the class of `data`, then a class for each other list of axes, and assigns each parameter
// to its class.
void make_classes(ZeroPlan& plan, const Config& config, const Machine& machine,
                  IdVector<ParamId, ParamSpec>& params) {
  auto class_of = [&](const std::vector<std::string_view>& axes) {
    std::vector<std::string> names(axes.begin(), axes.end());
    for (ClassId c : plan.classes.ids()) {
      if (plan.classes[c].axes == names) return c;
    }
    RankLevels levels = make_levels(config, plan.mesh, plan.mesh.group(axes), machine);
    Policy policy = make_policy(config.zero, levels);
    return plan.classes.add({std::move(names), std::move(levels), policy});
  };
  class_of(plan.mesh.data_axes());
  for (ParamSpec& p : params) {
    std::vector<std::string_view> axes;
    for (const Mesh::Axis& axis : plan.mesh.axes()) {
      if (std::find(p.reduced_over.begin(), p.reduced_over.end(), axis.name) !=
          p.reduced_over.end())
        axes.push_back(axis.name);
    }
    require(axes.size() == p.reduced_over.size(),
            "parameter '{}' is reduced over {}, but the mesh is {}", TensorName(p.name),
            fmt::join(p.reduced_over, " and "), plan.mesh.name());
    const std::vector<std::string_view> data = plan.mesh.data_axes();
    for (std::string_view axis : axes) {
      if (std::find(data.begin(), data.end(), axis) != data.end()) continue;
      raise(DS_ERROR_UNSUPPORTED,
            "parameter '{}' is reduced over {}: gradients are summed along {}, not yet along {}",
            TensorName(p.name), fmt::join(axes, " and "), fmt::join(data, " and "), axis);
    }
    p.cls = p.reduced_over.empty() ? ClassId(0) : class_of(axes);
  }
}

// Decides what is quantized. A single rank sends nothing, so its gradients are not quantized. Its
// weights are, because the result of a model must not depend on the number of ranks.
Quantization make_quantization(const ZeroConfig& zero, int world, bool training) {
  Quantization q;
  q.weights = zero.quantized_weights ? 8 : 0;
  q.gradients = zero.quantized_gradients && training && world > 1 ? zero.gradient_bits : 0;
  q.feedback = q.gradients > 0 && zero.error_feedback;
  q.err_beta = zero.err_beta;
  q.reset = zero.err_reset;
  return q;
}

// Returns the type in which gradients travel. Config::wire() replaces f32 by the compute type,
// because a leaf holds only values of the compute type. In a reduction at the boundary sums of
// leaves travel. They hold other values, so they stay f32 if the configuration says f32.
DType wire_of(const Config& config, bool boundary) {
  return boundary && config.communication == DS_DTYPE_F32 ? DS_DTYPE_F32 : config.wire();
}

// Returns the tables with the bound on the rows of one reduction. A reduction at the boundary
// covers the rows that the ids of all micro-steps name.
std::vector<RowTable> tables_of_a_reduction(std::span<const RowTable> tables,
                                            const ZeroPlan& plan) {
  std::vector<RowTable> out(tables.begin(), tables.end());
  if (!plan.boundary) return out;
  for (RowTable& t : out) t.bound = std::min(t.rows, t.bound * plan.accumulation);
  return out;
}

}  // namespace

ZeroPlan make_zero_plan(const Config& config, IdVector<ParamId, ParamSpec> params, int rank,
                        const Mesh& mesh, const Machine& machine, bool training,
                        std::span<const RowTable> tables) {
  ZeroPlan plan;
  plan.rank = rank;
  plan.mesh = mesh;
  plan.accumulation = config.accumulation;
  plan.tree = config.reproducible;
  plan.compute = config.compute;
  plan.boundary = config.reduction == "boundary" && config.accumulation > 1;
  plan.wire = wire_of(config, plan.boundary);
  plan.wire_given = config.communication != DS_DTYPE_NONE;
  for (ParamSpec& p : params) {
    if (p.dtype == DS_DTYPE_NONE) p.dtype = plan.compute;
  }
  plan.sums = config.grad_accum;
  make_classes(plan, config, machine, params);
  for (const ParamClass& c : plan.classes)
    ensure(!plan.boundary || c.policy.grads == 0,
           "reduction at the boundary needs gradients that are not partitioned");
  if (training && optimizer_of(config.optimizer).compresses() && plan.classes.size() > 1) {
    raise(DS_ERROR_UNSUPPORTED,
          "{}: {} compresses momentum over all ranks along data, but the model has {} classes",
          KeyName("optimizer.type"), config.optimizer.type, plan.classes.size());
  }
  if (training && mesh.data_size() > 1) plan.compression = config.gradient_compression;
  if (plan.compression.on() && plan.classes.size() > 1) {
    raise(DS_ERROR_UNSUPPORTED,
          "{}: \"{}\" compresses gradients over all ranks along data, but the model has {} classes",
          KeyName("gradient_compression.type"), plan.compression.type, plan.classes.size());
  }
  plan.quantization = make_quantization(config.zero, mesh.data_size(), training);
  for (const ParamSpec& p : params) {
    bool codes = plan.quantization.weights > 0 || plan.quantization.gradients > 0 ||
                 plan.compression.type == "int8";
    if (codes && p.granule % kGranule != 0) {
      raise(
          DS_ERROR_UNSUPPORTED,
          "quantization needs granules of a multiple of {} elements, but a granule of '{}' has {}",
          kGranule, p.name, p.granule);
    }
  }
  for (const ParamSpec& p : params) {
    if (training && config.optimizer.states == DS_DTYPE_U8 && p.granule % kStateBlock != 0) {
      raise(DS_ERROR_UNSUPPORTED,
            "{}: \"u8\" needs granules of a multiple of {} elements, but a granule of '{}' has {}",
            KeyName("optimizer.states"), kStateBlock, TensorName(p.name), p.granule);
    }
    plan.matrices.push_back({p.rows, p.cols});
  }
  for (ParamClass& c : plan.classes) {
    // Stages 1 and 2 cut only states and gradients, which a plan without training does not have.
    if (!training && config.zero.stage < 3) c.policy = {};
  }
  if (config.sparse_gradients && training) {
    const ParamClass& of_data = plan.classes.front();
    ChosenTables chosen =
        choose_row_tables({of_data.levels, of_data.policy.grads, plan.quantization.gradients,
                           plan.wire, plan.boundary ? "step" : "micro-step"},
                          tables_of_a_reduction(tables, plan), params);
    plan.tables = std::move(chosen.tables);
    plan.notes = std::move(chosen.notes);
  }
  IdVector<ClassId, int> ranks;
  for (const ParamClass& c : plan.classes) ranks.push_back(c.levels.ranks());
  plan.layout =
      make_layout(params, ranks, config.zero.reduce_bucket_size,
                  config.zero.param_persistence_threshold, config.zero.model_persistence_threshold);
  plan.memory.scalars = plan.memory.add(Holds::scalars, "scalars", DS_DTYPE_U8, 256, Tier::device);
  TrainedParams trained;
  for (const ParamSpec& p : params) {
    trained.frozen.push_back(p.frozen);
    trained.begun.push_back(!p.frozen);
    trained.group.push_back(p.group);
  }
  trained.missed.resize(params.size(), 0);
  for (const Bucket& b : plan.layout.buckets) {
    if (plan.compression.type != "top_k" || b.numel <= INT32_MAX) continue;
    raise(DS_ERROR_UNSUPPORTED,
          "{}: \"top_k\" takes at most {} elements in a bucket, but '{}' has {}",
          KeyName("gradient_compression.type"), INT32_MAX, b.name, b.numel);
  }
  for (BucketId b : plan.layout.buckets.ids()) plan.buckets.push_back(make_params(plan, b));
  if (training) set_trained(plan, config.optimizer, trained);
  return plan;
}

void set_trained(ZeroPlan& plan, const OptimizerConfig& config, const TrainedParams& trained) {
  if (std::find(trained.frozen.begin(), trained.frozen.end(), 0) == trained.frozen.end())
    raise(DS_ERROR_CONFIG, "{}: all {} parameters are frozen, but at least one must be trained",
          KeyName("frozen_parameters"), trained.frozen.size());
  plan.trained = trained;
  for (BucketId b : plan.buckets.ids()) {
    const std::vector<ParamPlace>& params = plan.layout.buckets[b].params;
    auto begun = [&](const ParamPlace& p) { return trained.begun[p.param] != 0; };
    if (!plan.has_states(b) && std::any_of(params.begin(), params.end(), begun))
      add_states(plan, config, b);
  }
  add_joint_states(plan, config);
  place_norms(plan, optimizer_of(config));
}

}  // namespace ds
