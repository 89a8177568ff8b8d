#include "support/random_run.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "core/base/dtype.h"
#include "core/program/program.h"
#include "support/dice.h"
#include "support/models.h"
#include "support/random_model.h"
#include "support/same_bits.h"

namespace ds::test {
namespace {

const char* kind_name(RunEvent::Kind kind) {
  switch (kind) {
    case RunEvent::Kind::freeze:
      return "freeze";
    case RunEvent::Kind::thaw:
      return "thaw";
    case RunEvent::Kind::write:
      return "write";
    default:
      return "evaluate";
  }
}

std::vector<int32_t> those_that(const std::vector<char>& frozen, bool are) {
  std::vector<int32_t> out;
  for (size_t p = 0; p < frozen.size(); ++p) {
    if ((frozen[p] != 0) == are) out.push_back(static_cast<int32_t>(p));
  }
  return out;
}

// Draws some of the parameters: at least one if possible, but not all if `leave_one` is set.
std::vector<int32_t> some_of(std::vector<int32_t> params, Dice& dice, bool leave_one) {
  if (leave_one && !params.empty())
    params.erase(params.begin() + dice.below(static_cast<int64_t>(params.size())));
  if (params.empty()) return params;
  std::vector<int32_t> out;
  const int64_t one_in = dice.pick<int64_t>({1, 2, 4});
  const int32_t sure = params[static_cast<size_t>(dice.below(static_cast<int64_t>(params.size())))];
  for (int32_t p : params) {
    if (p == sure || dice.one_in(one_in)) out.push_back(p);
  }
  return out;
}

// Draws the initially frozen parameters and the events before each step.
void draw_events(RandomRun& run, Dice& dice) {
  std::vector<char> frozen(run.graph.params.size(), 0);
  auto mark = [&](const std::vector<int32_t>& params, bool as) {
    for (int32_t p : params) frozen[static_cast<size_t>(p)] = as;
  };
  if (dice.one_in(2)) {
    mark(some_of(those_that(frozen, false), dice, true), true);
    for (int32_t p : those_that(frozen, true))
      run.config.frozen.push_back(run.graph.params[ParamId(p)].name);
  }
  run.events.resize(static_cast<size_t>(run.steps));
  if (dice.one_in(3)) return;
  for (std::vector<RunEvent>& events : run.events) {
    for (int64_t count = dice.below(3); count > 0; --count) {
      using Kind = RunEvent::Kind;
      RunEvent e{dice.pick({Kind::freeze, Kind::thaw, Kind::thaw, Kind::write, Kind::write,
                            Kind::evaluate}),
                 {}};
      if (e.kind == Kind::freeze) e.params = some_of(those_that(frozen, false), dice, true);
      if (e.kind == Kind::thaw) e.params = some_of(those_that(frozen, true), dice, false);
      if (e.kind == Kind::write) {
        const bool of_frozen = !dice.one_in(4) && !those_that(frozen, true).empty();
        const std::vector<int32_t> from = those_that(frozen, of_frozen);
        e.params = {from[static_cast<size_t>(dice.below(static_cast<int64_t>(from.size())))]};
        e.frozen = of_frozen;
      }
      if (e.params.empty() && e.kind != Kind::evaluate) continue;
      if (e.kind == Kind::freeze || e.kind == Kind::thaw) mark(e.params, e.kind == Kind::freeze);
      events.push_back(std::move(e));
    }
  }
}

void draw_absence(RandomRun& run, Dice& dice) {
  run.absent.assign(static_cast<size_t>(run.steps), 0);
  if (run.world == 1 || !dice.one_in(3)) return;
  for (uint32_t& ranks : run.absent) {
    if (dice.one_in(2)) ranks = static_cast<uint32_t>(dice.below((int64_t{1} << run.world) - 1));
  }
}

void draw_optimizer(RandomRun& run, Dice& dice) {
  OptimizerConfig& o = run.config.optimizer;
  o.type = dice.pick({"AdamW", "AdamW", "Lamb", "Lamb", "SGD", "Adagrad", "Lion", "Muon"});
  o.adam_w_mode = o.type != "AdamW" || !dice.one_in(3);
  if (o.type == "SGD") o.momentum = dice.pick({0.0, 0.9});
  if (o.type == "Adagrad") o.initial_accumulator = 0.1;
  if (o.type == "Muon") {
    o.momentum = 0.95;
    o.adam_lr = 0.003;
    if (dice.one_in(2)) o.ns_method = "standard";
  }
  const bool lean = o.type == "AdamW" && dice.one_in(4);
  if (lean) o.states = dice.pick({DS_DTYPE_BF16, DS_DTYPE_U8});
  if (lean && run.config.compute == DS_DTYPE_BF16 && dice.one_in(2)) o.masters = DS_DTYPE_BF16;
  o.stochastic = lean;
  if (dice.one_in(4)) {
    const auto last = ParamId(run.graph.params.size() - 1);
    o.groups = {{{run.graph.params[last].name}, {{"lr", 0.002}, {"weight_decay", 0.2}}}};
  }
}

}  // namespace

bool RandomRun::uneven() const {
  return std::any_of(absent.begin(), absent.end(), [](uint32_t ranks) { return ranks != 0; });
}

std::string RandomRun::text() const {
  const ZeroConfig& z = config.zero;
  const OptimizerConfig& o = config.optimizer;
  std::string out = fmt::format(
      "seed {}: {} masters {} states {} stage {} states {} params {} world {} leaves {} {} {} clip "
      "{} bucket {} persist {} prefetch {} live {} reuse {} group {} overlap {} emulate {} nodes "
      "{} mics {} hpz {} threads {} pieces {} sparse {} compressed {} callbacks {} chaos {} mean "
      "by {}",
      seed, o.type, dtype_name(o.masters), dtype_name(o.states), z.stage,
      tier_name(z.optimizer_tier), tier_name(z.param_tier), world, leaves,
      config.reproducible ? "tree" : config.reduction, dtype_name(config.compute),
      config.gradient_clipping, z.reduce_bucket_size, z.param_persistence_threshold,
      z.prefetch_bucket_size, z.max_live_parameters, z.max_reuse_distance, z.sub_group_size,
      z.overlap_comm, config.emulate_tiers, config.nodes, z.mics_shard_size, z.hpz_partition_size,
      threads, pieces, config.sparse_gradients,
      config.gradient_compression.on() ? config.gradient_compression.type : "none", by_callbacks,
      chaos ? std::to_string(*chaos) : "off", config.loss_average);
  auto names = [&](const std::vector<int32_t>& params) {
    std::string text;
    for (int32_t p : params) text += " " + graph.params[ParamId(p)].name;
    return text;
  };
  if (!config.frozen.empty()) out += "\n  frozen";
  for (const std::string& name : config.frozen) out += " " + name;
  for (size_t s = 0; s < events.size(); ++s) {
    for (const RunEvent& e : events[s])
      out += fmt::format("\n  before step {}: {}{}", s, kind_name(e.kind), names(e.params));
    if (absent[s] != 0) out += fmt::format("\n  in step {} ranks {:#b} have no data", s, absent[s]);
  }
  return out;
}

std::vector<TakeOver> draw_take_overs(const RandomRun& run) {
  Dice dice(run.seed, 9);
  std::vector<TakeOver> out;
  int at = 0;
  for (int64_t count = dice.below(3); count > 0; --count) {
    at += 1 + static_cast<int>(dice.below(2));
    if (at >= run.steps) break;
    out.push_back({at, dice.one_in(2), dice.one_in(3)});
  }
  return out;
}

RandomRun draw_plain_run(uint64_t seed) {
  Dice dice(seed, 3);
  RandomRun run;
  run.seed = seed;
  run.graph = random_model(seed);
  run.world = dice.pick({1, 2, 4, 4});
  run.leaves = run.world * (1 + dice.below(4));
  run.config = make_config(0, run.leaves / run.world, run.world);
  run.config.seed = seed;
  run.config.compute =
      dice.pick({DS_DTYPE_F32, DS_DTYPE_F32, DS_DTYPE_BF16, DS_DTYPE_BF16, DS_DTYPE_F16});
  run.config.loss_scale.initial_scale_power = dice.pick<int64_t>({4, 12, 30});
  run.config.loss_scale.window = 2;
  run.config.loss_scale.hysteresis = 1;
  run.config.reproducible = dice.one_in(2);
  run.config.gradient_clipping = dice.pick({0.0, 0.05, 1.0});
  run.config.zero.overlap_comm = false;
  run.steps = static_cast<int>(3 + dice.below(3));
  for (int s = 0; s < run.steps; ++s) run.rows.push_back(1 + dice.below(run.graph.bound));
  // Some runs have so many micro-steps that their program repeats one of them.
  if (Dice longer(seed, 6); longer.one_in(5)) {
    run.leaves = run.world * (8 + longer.below(13));
    run.config.accumulation = run.leaves / run.world;
  }
  if (Dice order(seed, 10); !run.config.reproducible && order.one_in(3))
    run.config.reduction = "boundary";
  const bool targets = run.graph.type(run.graph.inputs.back()).dtype == DS_DTYPE_I32;
  if (Dice tokens(seed, 11); targets && tokens.one_in(2)) run.config.loss_average = "tokens";
  Dice happens(seed, 8);
  draw_optimizer(run, happens);
  draw_events(run, happens);
  draw_absence(run, happens);
  return run;
}

RandomRun draw_compressed_run(uint64_t seed) {
  RandomRun run = draw_plain_run(seed);
  Dice dice(seed, 7);
  OptimizerConfig o;
  o.lr = 0.01;
  o.weight_decay = dice.pick({0.0, 0.1});
  o.freeze_step = o.var_freeze_step = 1 + dice.below(2);
  o.var_update_scaler = o.local_step_scaler = 1;
  o.local_step_clipper = dice.pick<int64_t>({1, 2, 4});
  o.type = dice.pick({"OneBitAdam", "OneBitLamb", "ZeroOneAdam"});
  o.bias_correction = false;
  if (dice.one_in(3)) {
    o.type = "AdamW";
    o.bias_correction = true;
    run.config.gradient_compression = {dice.pick({"int8", "top_k"}), 0.1};
  }
  run.config.optimizer = std::move(o);
  return run;
}

RandomRun with_layout(RandomRun run, uint32_t stream) {
  Dice dice(run.seed, stream);
  ZeroConfig& z = run.config.zero;
  z.stage = dice.pick({0, 1, 2, 3, 3, 3});
  if (run.config.reduction == "boundary") z.stage %= 2;
  z.optimizer_tier = dice.pick({Tier::device, Tier::host, Tier::nvme});
  if (z.stage == 3) z.param_tier = dice.pick({Tier::device, Tier::host, Tier::nvme});
  z.nvme_path = scratch_folder();
  z.reduce_bucket_size = dice.pick<int64_t>({1, 500, 2000, 500000000});
  z.param_persistence_threshold = dice.pick<int64_t>({0, 40, 300, 2000, 100000});
  z.prefetch_bucket_size = dice.pick<int64_t>({0, 600, 50000000});
  z.max_reuse_distance = dice.pick<int64_t>({0, 1000, 1000000000});
  z.sub_group_size = dice.pick<int64_t>({1, 300, 4096, 5000, 1000000000});
  z.overlap_comm = !dice.one_in(4);
  z.buffer_count = static_cast<int>(3 + dice.below(3));
  run.config.emulate_tiers = dice.one_in(2);
  run.threads = static_cast<int>(1 + dice.below(3));
  run.pieces = dice.one_in(4);
  if (!dice.one_in(3)) run.chaos = 1 + static_cast<uint64_t>(dice.below(1000));
  while (run.config.reproducible && !run.uneven()) {
    run.world = dice.pick({1, 2, 4});
    if (run.leaves % run.world == 0) break;
  }
  run.config.accumulation = run.leaves / run.world;
  run.config.nodes = dice.pick({0, 1, run.world});
  if (run.world == 4 && dice.one_in(2)) run.config.nodes = 2;
  if (z.stage == 3 && run.world > 1 && !dice.one_in(3)) {
    int64_t shard = dice.pick({2, 2, run.world});
    bool mics = !dice.one_in(3) || z.param_tier == Tier::nvme;
    (mics ? z.mics_shard_size : z.hpz_partition_size) = shard;
    z.mics_hierarchical_gather = dice.one_in(2);
  }
  if (dice.one_in(2)) z.max_live_parameters = dice.pick<int64_t>({0, 256, 1000, 4000});
  run.config.sparse_gradients = dice.one_in(2);
  run.written_out = 0;
  run.by_callbacks = dice.one_in(4);
  return run;
}

RandomRun with_compressed_layout(const RandomRun& run, uint32_t stream) {
  RandomRun out = with_layout(run, stream);
  ZeroConfig& z = out.config.zero;
  z.stage = run.config.optimizer.type == "ZeroOneAdam" ? 0 : z.stage % 2;
  z.param_tier = Tier::device;
  z.mics_shard_size = -1;
  z.hpz_partition_size = 1;
  z.mics_hierarchical_gather = false;
  out.world = run.world;
  out.config.accumulation = run.config.accumulation;
  out.config.nodes = run.world > 1 && run.seed % 2 == 0 ? run.world / 2 : 0;
  out.config.sparse_gradients = false;
  // The compression error of reduced sums is kept for each part of a bucket, so other buckets would
  // reset it to 0.
  if (run.config.gradient_compression.type == "int8") {
    z.reduce_bucket_size = run.seed % 2 == 0 ? 500 : 500000000;
    z.param_persistence_threshold = 300;
  }
  return out;
}

}  // namespace ds::test
