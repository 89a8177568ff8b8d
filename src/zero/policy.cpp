#include "zero/policy.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <string_view>
#include <utility>

#include "core/base/error.h"
#include "core/config/rank_counts.h"
#include "core/program/mesh.h"
#include "core/program/signs.h"
#include "core/program/state_codes.h"
#include "optim/optimizer.h"

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
    check_nodes(config, mesh.ranks());
    ranks_per_node = mesh.ranks() / static_cast<int>(config.nodes);
  }
  auto [world, stride] = group;  // from here on ranks are those of the group
  std::vector<int> blocks{world};
  int64_t shard = zero.shard_group();
  if (shard > world && world < mesh.data_size()) shard = 0;
  if (shard > 0) check_shard_group(zero, world);
  if (shard > 0) blocks.push_back(static_cast<int>(shard));
  auto add = [&, world = world, stride = stride](int ranks) {
    ranks = ranks % stride == 0 ? ranks / stride : 0;
    bool level = ranks > 0 && ranks < world && world % ranks == 0 &&
                 std::has_single_bit(static_cast<uint64_t>(ranks));
    bool inside = ranks < zero.mics_shard_size;  // a shard group of several such blocks
    if (level && (!inside || zero.mics_hierarchical_gather)) blocks.push_back(ranks);
  };
  add(ranks_per_node);
  if (config.levels == "auto") add(machine.ranks_per_memory_node);
  std::sort(blocks.begin(), blocks.end());
  return RankLevels::of_blocks(std::move(blocks), stride);
}

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

BufferId ZeroPlan::add(Holds holds, std::string name, DType dtype, int64_t numel, Tier tier) {
  return buffers.add({std::move(name), dtype, numel, tier, Residency::persistent, -1, holds});
}

namespace {

// Where a bucket's parameters live.
BucketState make_params(ZeroPlan& plan, BucketId index) {
  const Bucket& bucket = plan.layout.buckets[index];
  const Policy& policy = plan.policy(index);
  BucketState s;
  s.partitioned = policy.params > 0 && !bucket.persistent;
  int cut = s.partitioned ? policy.params : 0;
  BufferId held =
      plan.add(Holds::param, bucket.name + ".param", plan.compute, plan.part_numel(index, cut),
               s.partitioned ? policy.param_tier : Tier::device);
  s.full = s.partitioned ? BufferId() : held;
  s.param = {held, plan.part_first(index) - plan.part_first(index, cut), plan.part_numel(index)};
  s.master = s.param;
  return s;
}

// What training keeps beside the parameters.
void add_state(ZeroPlan& plan, const OptimizerConfig& config, BucketId index) {
  const Bucket& bucket = plan.layout.buckets[index];
  const Optimizer& optimizer = optimizer_of(config);
  const Policy& policy = plan.policy(index);
  int64_t part = plan.part_numel(index);
  BucketState& s = plan.buckets[index];
  // In the type of masters on the device the parameter is its own master.
  bool own_master = plan.compute == config.masters && !optimizer.steps_locally() &&
                    policy.state_tier == Tier::device &&
                    plan.buffers[s.param.buffer].tier == Tier::device;
  if (!own_master) {
    s.master = {
        plan.add(Holds::master, bucket.name + ".master", config.masters, part, policy.state_tier),
        0, part};
  }
  const Tier near = policy.state_tier == Tier::device ? Tier::device : Tier::host;
  for (const std::string& state : optimizer.states) {
    if (bucket.matrices && !s.states.empty()) break;
    bool whole = optimizer.whole_momentum() && s.states.empty();
    BufferId held = plan.add(Holds::state, bucket.name + "." + state, config.states,
                             whole ? bucket.numel : part, whole ? Tier::device : policy.state_tier);
    s.states.push_back({held, whole ? plan.part_first(index) : 0, part});
    if (config.states == DS_DTYPE_U8) {
      int64_t blocks = part / kStateBlock;
      s.scales.push_back({plan.add(Holds::state, bucket.name + "." + state + ".scales",
                                   config.states, blocks, near),
                          0, blocks});
    }
  }
  if (optimizer.steps_locally())
    s.own_steps = plan.add(Holds::state, bucket.name + ".own_steps", DS_DTYPE_F32, bucket.numel,
                           Tier::device);
  if (plan.compression.on()) {
    auto error = [&](const char* name, int64_t numel) {
      return plan.add(Holds::error, bucket.name + name, DS_DTYPE_F32, numel, Tier::device);
    };
    s.sent_error = error(".sent_error", bucket.numel);
    if (plan.compression.type == "int8")
      s.answer_error = error(".answer_error", bucket.numel / plan.levels(index).ranks());
  }
  if (optimizer.compresses() && !optimizer.joins_momenta() && plan.levels(index).ranks() > 1) {
    int64_t ranks = plan.levels(index).ranks();
    int64_t chunks = sign_sizes(places_of(bucket.params), ranks, 1).chunks;
    auto error = [&](const char* name, int64_t numel) {
      return plan.add(Holds::error, bucket.name + name, DS_DTYPE_F32, numel, Tier::device);
    };
    s.worker_error = error(".worker_error", ranks * chunks);
    s.server_error = error(".server_error", chunks);
  }
  for (int level = 0; level <= plan.grad_top(); ++level) {
    std::string name = bucket.name + ".grad" + (level == 0 ? "" : "." + std::to_string(level));
    s.grad.push_back(plan.add(Holds::grad, name, plan.sums, plan.part_numel(index, policy.grads),
                              policy.state_tier));
  }
  bool feedback = plan.quantization.feedback && !plan.table(index);
  for (int level = 0; feedback && level < plan.levels(index).depth(); ++level) {
    std::string name = bucket.name + ".error" + (level == 0 ? "" : "." + std::to_string(level));
    s.errors.push_back(
        plan.add(Holds::error, name, DS_DTYPE_F32, plan.part_numel(index, level), Tier::device));
  }
  s.grad_first = plan.part_first(index) - plan.part_first(index, policy.grads);
}

// A place for the norms of every granule that has states; when that of the beginning does not
// suffice, once one for all that there can be.
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
    if (!first && granules * each <= plan.buffers[norms].numel) return;
    norms = plan.add(Holds::norms, first ? name : name + ".all", DS_DTYPE_F64,
                     each * (first ? granules : all), near);
  };
  place(plan.norms, "norms", 1);
  if (optimizer.by_norms)
    place(plan.update_norms, "update_norms", optimizer.joins_momenta() ? 3 : 2);
}

void add_joined(ZeroPlan& plan) {
  const auto params = static_cast<int64_t>(plan.layout.bucket_of.size());
  int64_t numel = 0, ranks = plan.classes.front().levels.ranks();
  for (const Bucket& b : plan.layout.buckets) {
    for (const ParamPlace& p : b.params) numel += p.numel;
  }
  auto add = [&](Holds holds, const char* name, int64_t count) {
    return plan.add(holds, name, DS_DTYPE_F32, count, Tier::device);
  };
  plan.joined.coefficients = add(Holds::state, "coefficients", 3 * params);
  if (ranks == 1) return;
  const int64_t chunk = sign_chunk(numel, ranks);
  plan.joined.worker_error = add(Holds::error, "worker_error", ranks * chunk);
  plan.joined.server_error = add(Holds::error, "server_error", chunk);
  plan.joined.padding = add(Holds::state, "padding", ranks * sign_chunk(1, ranks));
}

// The class of `data`, then one for each other list of axes.
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
            "parameter '{}' is reduced over {}, the mesh is {}", TensorName(p.name),
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

// One rank has nothing to send: its gradients stay as they are. Its weights do not: what a model
// computes does not depend on the number of ranks.
Quantization make_quantization(const ZeroConfig& zero, int world, bool training) {
  Quantization q;
  q.weights = zero.quantized_weights ? 8 : 0;
  q.gradients = zero.quantized_gradients && training && world > 1 ? zero.gradient_bits : 0;
  q.feedback = q.gradients > 0 && zero.error_feedback;
  q.err_beta = zero.err_beta;
  q.reset = zero.err_reset;
  return q;
}

// An f32 copy of a leaf gives the bits of the leaf, but a sum of leaves in f32 has more than the
// compute type holds.
DType wire_of(const Config& config, bool boundary) {
  return boundary && config.communication == DS_DTYPE_F32 ? DS_DTYPE_F32 : config.wire();
}

// Of a reduction at the boundary ids of all micro-steps name rows.
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
  plan.sums = config.grad_accum;
  make_classes(plan, config, machine, params);
  for (const ParamClass& c : plan.classes)
    ensure(!plan.boundary || c.policy.grads == 0, "reduction at the boundary: gradients are cut");
  if (training && optimizer_of(config.optimizer).compresses() && plan.classes.size() > 1) {
    raise(DS_ERROR_UNSUPPORTED,
          "{}: {} compresses momentum over all ranks along data, this model has {} classes",
          KeyName("optimizer.type"), config.optimizer.type, plan.classes.size());
  }
  if (training && mesh.data_size() > 1) plan.compression = config.gradient_compression;
  if (plan.compression.on() && plan.classes.size() > 1) {
    raise(DS_ERROR_UNSUPPORTED,
          "{}: \"{}\" compresses gradients over all ranks along data, this model has {} classes",
          KeyName("gradient_compression.type"), plan.compression.type, plan.classes.size());
  }
  plan.quantization = make_quantization(config.zero, mesh.data_size(), training);
  for (const ParamSpec& p : params) {
    bool codes = plan.quantization.weights > 0 || plan.quantization.gradients > 0 ||
                 plan.compression.type == "int8";
    if (codes && p.granule % kGranule != 0) {
      raise(DS_ERROR_UNSUPPORTED, "quantization is of {} elements, a granule of '{}' has {}",
            kGranule, p.name, p.granule);
    }
  }
  for (const ParamSpec& p : params) {
    if (training && config.optimizer.states == DS_DTYPE_U8 && p.granule % kStateBlock != 0) {
      raise(DS_ERROR_UNSUPPORTED, "{}: \"u8\" has blocks of {} elements, a granule of '{}' has {}",
            KeyName("optimizer.states"), kStateBlock, TensorName(p.name), p.granule);
    }
    plan.matrices.push_back({p.rows, p.cols});
  }
  for (ParamClass& c : plan.classes) {
    if (!training && config.zero.stage < 3)
      c.policy = {};  // nothing but states and gradients is cut
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
  plan.scalars = plan.add(Holds::scalars, "scalars", DS_DTYPE_U8, 256, Tier::device);
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
          "{}: \"top_k\" numbers {} elements of a bucket at most, '{}' has {}",
          KeyName("gradient_compression.type"), INT32_MAX, b.name, b.numel);
  }
  for (BucketId b : plan.layout.buckets.ids()) plan.buckets.push_back(make_params(plan, b));
  if (training) set_trained(plan, config, trained);
  return plan;
}

void set_trained(ZeroPlan& plan, const Config& config, const TrainedParams& trained) {
  if (std::find(trained.frozen.begin(), trained.frozen.end(), 0) == trained.frozen.end())
    raise(DS_ERROR_CONFIG, "{}: all {} parameters are frozen, one at least must be trained",
          KeyName("frozen_parameters"), trained.frozen.size());
  plan.trained = trained;
  for (BucketId b : plan.buckets.ids()) {
    const std::vector<ParamPlace>& params = plan.layout.buckets[b].params;
    auto begun = [&](const ParamPlace& p) { return trained.begun[p.param] != 0; };
    if (!plan.has_states(b) && std::any_of(params.begin(), params.end(), begun))
      add_state(plan, config.optimizer, b);
  }
  const Optimizer& optimizer = optimizer_of(config.optimizer);
  if (optimizer.joins_momenta() && !plan.joined.coefficients.exists()) add_joined(plan);
  place_norms(plan, optimizer);
}

}  // namespace ds
