// Draws everything about a random delegate host that its seed decides.
#include <fmt/core.h>

#include <bit>
#include <memory>
#include <utility>

#include "core/device/separate_device.h"
#include "kernels/host_update.h"
#include "support/expected_groups.h"
#include "support/models.h"
#include "support/random_host.h"
#include "support/same_bits.h"

namespace ds::test {
namespace {

void choose_memory(Config& c, Dice& dice) {
  c.emulate_tiers = dice.one_in(2);
  c.zero.nvme_path = scratch_folder();
  if (dice.one_in(2)) c.zero.optimizer_tier = dice.pick({Tier::host, Tier::nvme});
  if (c.zero.stage == 3 && dice.one_in(2)) c.zero.param_tier = dice.pick({Tier::host, Tier::nvme});
  c.zero.reduce_bucket_size = dice.pick<int64_t>({256, 1024, 3000, 1 << 20});
  c.zero.param_persistence_threshold = dice.pick<int64_t>({0, 0, 300, 1 << 20});
  c.zero.max_reuse_distance = dice.pick<int64_t>({0, 0, 1500, 1 << 20});
  c.zero.prefetch_bucket_size = dice.pick<int64_t>({0, 1024, 1 << 20});
  if (dice.one_in(4)) c.zero.max_live_parameters = dice.pick<int64_t>({2000, 5000});
  c.zero.sub_group_size = dice.pick<int64_t>({4096, 1 << 20});
  c.zero.buffer_count = static_cast<int>(dice.pick({1, 4}));
  c.zero.overlap_comm = !dice.one_in(4);
  if (dice.one_in(3)) c.recompute = dice.one_in(2) ? "layers" : "cheap";
  c.zero.sanity_checks = dice.one_in(4);
}

void choose_codes(Config& c, Dice& dice) {
  if (c.zero.stage == 3) c.zero.quantized_weights = dice.one_in(3);
  if (c.zero.stage < 2 || !dice.one_in(2)) return;
  c.zero.quantized_gradients = true;
  c.zero.gradient_bits = static_cast<int>(dice.pick({4, 8}));
  c.zero.error_feedback = dice.one_in(2);
  c.zero.err_reset = dice.pick<int64_t>({2, 1024});
}

// Draws the number of nodes and, at stage 3, perhaps shard groups that hold all parameters (hpZ) or
// all of the state (MiCS).
void choose_levels(Config& c, Dice& dice, int world) {
  c.nodes = dice.pick<int64_t>({0, world / 2, world / 2, 2});
  if (c.zero.stage < 3) return;
  int64_t shard = dice.pick<int64_t>({1, 2, 2, 2, world == 6 ? 6 : 4});
  int64_t way = dice.below(3);
  if (way == 0) c.zero.mics_shard_size = shard;
  if (way == 0) c.zero.mics_hierarchical_gather = dice.one_in(2);
  if (way == 1 && c.zero.param_tier != Tier::nvme) c.zero.hpz_partition_size = shard;
}

void choose_optimizer(OptimizerConfig& o, Dice& dice) {
  o.lr = 0x1p-7;
  o.type = dice.pick({"SGD", "Adam", "AdamW", "Lion", "Adagrad"});
  o.weight_decay = dice.pick({0.0, 0.1});
  o.momentum = o.type == "SGD" ? dice.pick({0.0, 0.5, 0.9}) : 0;
  o.nesterov = o.momentum > 0 && dice.one_in(3);
  o.dampening = o.momentum > 0 && !o.nesterov ? dice.pick({0.0, 0.25}) : 0;
  o.maximize = o.type == "SGD" && dice.one_in(4);
  o.adam_w_mode = o.type == "AdamW" || dice.one_in(2);
  o.bias_correction = !dice.one_in(4);
  if (o.type != "Adagrad") return;
  o.lr_decay = dice.pick({0.0, 0.25});
  o.initial_accumulator = dice.pick({0.0, 0.5});
}

// Draws groups of some parameters, listed by name.
void choose_groups(OptimizerConfig& o, const std::vector<std::string>& names, Dice& dice) {
  for (size_t p = 0; p < names.size() && o.groups.size() < 3; ++p) {
    if (!dice.one_in(2)) continue;
    if (o.groups.empty() || dice.one_in(2)) {
      auto [name, value] = random_number(o, dice);
      o.groups.push_back({{names[p]}, {{name, value}}});
    } else {
      o.groups.back().params.push_back(names[p]);
    }
  }
}

std::vector<int64_t> random_shape(Dice& dice) {
  if (dice.one_in(8)) return dice.pick<std::vector<int64_t>>({{0}, {0, 7}, {5, 0}});
  int64_t rows = dice.pick<int64_t>({1, 5, 16, 33}), columns = dice.pick<int64_t>({1, 7, 32});
  return dice.one_in(3) ? std::vector{rows * columns} : std::vector{rows, columns};
}

// Makes the step so long that one of its middle micro-steps is repeated.
void choose_long_step(RandomCase& c, Dice& dice) {
  Config& config = c.config;
  config.accumulation = config.reproducible ? dice.pick<int64_t>({8, 16}) : 6 + dice.below(8);
  config.train_batch = config.micro_batch * config.accumulation * c.world;
  c.options.programs.written_out = 0;
}

// Draws types that represent the hosts' gradients and their sums exactly.
void choose_gradient_types(RandomCase& c, Dice& dice) {
  Config& config = c.config;
  if (dice.one_in(3)) config.communication = dice.pick({DS_DTYPE_F32, DS_DTYPE_BF16, DS_DTYPE_F16});
  const int64_t leaves = config.accumulation * c.world, most = leaves * top_of(config);
  if (config.reproducible || !std::has_single_bit(static_cast<uint64_t>(leaves)) || !dice.one_in(3))
    return;
  if (most <= 256 && dice.one_in(2)) {
    config.grad_accum = DS_DTYPE_BF16;
  } else if (most <= 2048) {
    config.grad_accum = DS_DTYPE_F16;
  }
}

// Draws whether gradients are reduced at the boundary. The result is exact either way, because bf16
// represents each rank's sum of integers exactly.
void choose_reduction(RandomCase& c) {
  Config& config = c.config;
  Dice dice(c.seed, 3);
  if (config.zero.stage < 2 && !config.reproducible && dice.one_in(2))
    config.reduction = "boundary";
}

// A momentum whose first state adds up the numbers of the updates of each parameter.
class RandomUpdate final : public HostUpdate {
 public:
  void update(const HostElements& e) const override {
    const auto rate = static_cast<float>(e.numbers.lr),
               momentum = static_cast<float>(e.numbers.momentum),
               decay = static_cast<float>(e.numbers.weight_decay);
    for (size_t i = 0; i < e.values.size(); ++i) {
      float &steps = e.states[0][i], &velocity = e.states[1][i], &value = e.values[i];
      steps += static_cast<float>(e.update);
      velocity = momentum * velocity + e.grads[i];
      value -= rate * (velocity + decay * value);
    }
  }
};

// Draws the types of parameters, an update by callback, and what becomes of parameters without a
// gradient.
void choose_update(RandomCase& c) {
  Config& config = c.config;
  Dice dice(c.seed, 4);
  config.skip_missing = dice.one_in(3);
  for (size_t p = 0; p < c.names.size(); ++p)
    c.types.push_back(dice.one_in(4) ? DS_DTYPE_F32 : config.compute);
  // The host's function needs a device whose queues run on this thread.
  if (c.separate || c.options.chaos_seed || !dice.one_in(5)) return;
  config.optimizer.type = "Callback";
  config.optimizer.own_states = {"steps", "velocity"};
  config.optimizer.momentum = dice.pick({0.0, 0.5, 0.9});
  c.options.update = std::make_shared<RandomUpdate>();
}

}  // namespace

RandomCase random_case(uint64_t seed) {
  RandomCase out;
  Dice dice(seed, 1);
  out.seed = seed;
  bool levels = dice.one_in(8);
  out.world = static_cast<int>(levels ? dice.pick({4, 4, 4, 6, 8}) : 1 + dice.below(3));
  int stage = static_cast<int>(levels ? dice.pick({1, 2, 3, 3, 3}) : dice.below(4));
  Config& c = out.config = make_config(stage, 1 + dice.below(4), out.world);
  c.compute = dice.pick({DS_DTYPE_F32, DS_DTYPE_BF16, DS_DTYPE_F16});
  // Only f16 uses the loss scale.
  c.loss_scale.loss_scale = 4;
  c.reproducible =
      std::has_single_bit(static_cast<uint64_t>(c.accumulation * out.world)) && dice.one_in(3);
  c.gradient_clipping = 0;
  c.comm_timeout_ms = 20000;
  choose_optimizer(c.optimizer, dice);
  choose_memory(c, dice);
  choose_codes(c, dice);
  if (levels) choose_levels(c, dice, out.world);
  if (dice.one_in(4)) out.options.chaos_seed = seed;
  int64_t params = 2 + dice.below(6);
  for (int64_t p = 0; p < params; ++p) {
    out.names.push_back(fmt::format("h.{}.p{}", dice.one_in(2) ? p : p / 2, p));
    out.shapes.push_back(random_shape(dice));
  }
  if (dice.one_in(4)) c.frozen = {out.names[0]};
  if (dice.one_in(3)) choose_groups(c.optimizer, out.names, dice);
  if (dice.one_in(3)) choose_long_step(out, dice);
  if (!out.options.chaos_seed && dice.one_in(2)) {
    out.separate = dice.one_in(2) ? Delays{.jitter = seed} : Delays{};
    // The configuration does not know that this device has its own memory.
    c.emulate_tiers = true;
    out.options.device = [delays = *out.separate] {
      return std::make_unique<SeparateDevice>(delays);
    };
  }
  choose_gradient_types(out, dice);
  choose_reduction(out);
  choose_update(out);
  if (c.grad_accum == DS_DTYPE_F32 && dice.one_in(3)) c.loss_average = "tokens";
  return out;
}

std::string RandomCase::text() const {
  const ZeroConfig& z = config.zero;
  const OptimizerConfig& o = config.optimizer;
  std::string out = fmt::format("seed {}: {} ranks", seed, world);
  if (config.nodes > 0) out += fmt::format(" on {} nodes", config.nodes);
  if (z.mics_shard_size > 0)
    out += fmt::format(", shards of {}{}", z.mics_shard_size,
                       z.mics_hierarchical_gather ? " by node" : "");
  if (z.hpz_partition_size > 1) out += fmt::format(", parameters within {}", z.hpz_partition_size);
  out += fmt::format(", stage {}, {} micro-steps, {}{}{}{}{}, {} decay {} momentum {}{}{}", z.stage,
                     config.accumulation, dtype_name(config.compute),
                     config.reproducible              ? " reproducible"
                     : config.reduction == "boundary" ? " boundary"
                                                      : "",
                     config.by_tokens() ? " by tokens" : "", z.overlap_comm ? " overlap" : "",
                     options.chaos_seed ? " chaos"
                     : separate         ? " separate"
                                        : "",
                     o.type, o.weight_decay, o.momentum, o.nesterov ? " nesterov" : "",
                     o.adam_w_mode ? "" : " l2");
  out += fmt::format(", states {}, parameters {}{}, bucket {}, persistent {}, reuse {}, live {}{}",
                     tier_name(z.optimizer_tier), tier_name(z.param_tier),
                     config.emulate_tiers ? " emulated" : "", z.reduce_bucket_size,
                     z.param_persistence_threshold, z.max_reuse_distance, z.max_live_parameters,
                     z.sanity_checks ? ", checked" : "");
  if (config.skip_missing) out += ", missing gradients skipped";
  return out +
         fmt::format(", weights int{}, gradients int{}{}, {} parameters{}",
                     z.quantized_weights ? 8 : 0, z.quantized_gradients ? z.gradient_bits : 0,
                     z.error_feedback ? " feedback" : "", names.size(),
                     config.frozen.empty() ? "" : ", one frozen") +
         (config.communication == DS_DTYPE_NONE
              ? ""
              : fmt::format(", communication {}", dtype_name(config.communication))) +
         (config.grad_accum == DS_DTYPE_F32
              ? ""
              : fmt::format(", sums {}", dtype_name(config.grad_accum))) +
         (o.groups.empty() ? "" : fmt::format(", {} groups", o.groups.size() + 1));
}

}  // namespace ds::test
