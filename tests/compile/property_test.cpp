#include <fmt/core.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>

#include "core/base/error.h"
#include "engine/engine.h"
#include "support/dice.h"
#include "support/models.h"
#include "support/random_model.h"
#include "support/ranks.h"
#include "support/same_bits.h"
#include "support/temp_folder.h"

// Random graph x random policy == policy none, bit for bit. DS_PROPERTY_CASES sets the number of cases,
// DS_PROPERTY_FIRST the seed of the first.
namespace ds::test {
namespace {

constexpr int kSteps = 3;

struct Case {
  uint64_t seed = 0;
  Graph graph;
  Config config;
  int64_t leaves = 1;
  int world = 1;
  int threads = 1;
  bool pieces = false;  // forward, backward, step instead of train_batch
  std::optional<uint64_t> chaos;
  int64_t written_out = std::numeric_limits<int64_t>::max();  // PlanPrograms
  int64_t rows[kSteps] = {};

  std::string text() const {
    const ZeroConfig& z = config.zero;
    return fmt::format(
        "seed {}: stage {} states {} params {} world {} leaves {} {} {} clip {} bucket {} persist {} "
        "prefetch {} live {} reuse {} group {} overlap {} emulate {} nodes {} mics {} hpz {} threads {} "
        "pieces {} sparse {} chaos {} mean by {}",
        seed, z.stage, tier_name(z.optimizer_tier), tier_name(z.param_tier), world, leaves,
        config.reproducible ? "tree" : config.reduction, dtype_name(config.compute), config.gradient_clipping,
        z.reduce_bucket_size, z.param_persistence_threshold, z.prefetch_bucket_size, z.max_live_parameters,
        z.max_reuse_distance, z.sub_group_size, z.overlap_comm, config.emulate_tiers, config.nodes,
        z.mics_shard_size, z.hpz_partition_size, threads, pieces, config.sparse_gradients,
        chaos ? std::to_string(*chaos) : "off", config.loss_average);
  }
};

// Model, numerics and the plainest way to run them.
Case plain_case(uint64_t seed) {
  Dice dice(seed, 3);
  Case c;
  c.seed = seed;
  c.graph = random_model(seed);
  c.world = dice.pick({1, 2, 4});
  c.leaves = c.world * (1 + dice.below(4));
  c.config = make_config(0, c.leaves / c.world, c.world);
  c.config.run.seed = seed;
  c.config.compute = dice.one_in(2) ? DS_DTYPE_BF16 : DS_DTYPE_F32;
  c.config.reproducible = dice.one_in(2);
  c.config.gradient_clipping = dice.pick({0.0, 0.05, 1.0});
  c.config.optimizer.adam_w_mode = !dice.one_in(3);
  c.config.zero.overlap_comm = false;
  for (int64_t& n : c.rows) n = 1 + dice.below(c.graph.bound);
  if (Dice order(seed, 8); !c.config.reproducible && order.one_in(3)) c.config.reduction = "boundary";
  // Some have so many micro-steps that a policy repeats one of them.
  if (Dice longer(seed, 6); longer.one_in(4)) {
    c.leaves = c.world * (8 + longer.below(13));
    c.config.accumulation = c.leaves / c.world;
  }
  const bool targets = c.graph.type(c.graph.inputs.back()).dtype == DS_DTYPE_I32;
  if (Dice tokens(seed, 8); targets && tokens.one_in(2)) c.config.loss_average = "tokens";
  return c;
}

Case with_policy(Case c, uint32_t stream) {
  Dice dice(c.seed, stream);
  ZeroConfig& z = c.config.zero;
  z.stage = static_cast<int>(dice.below(4));
  if (c.config.reduction == "boundary") z.stage %= 2;
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
  c.config.emulate_tiers = dice.one_in(2);
  c.threads = static_cast<int>(1 + dice.below(3));
  c.pieces = dice.one_in(4);
  if (!dice.one_in(3)) c.chaos = 1 + static_cast<uint64_t>(dice.below(1000));
  if (c.config.reproducible) {
    while (true) {
      c.world = dice.pick({1, 2, 4});
      if (c.leaves % c.world == 0) break;
    }
    c.config.accumulation = c.leaves / c.world;
  }
  c.config.nodes = dice.pick({0, 1, c.world});
  if (c.world == 4 && dice.one_in(2)) c.config.nodes = 2;
  if (z.stage == 3 && c.world > 1 && dice.one_in(2)) {
    int64_t shard = dice.pick({2, c.world});
    bool mics = dice.one_in(2) || z.param_tier == Tier::nvme;
    (mics ? z.mics_shard_size : z.hpz_partition_size) = shard;
    z.mics_hierarchical_gather = dice.one_in(2);
  }
  if (dice.one_in(2)) z.max_live_parameters = dice.pick<int64_t>({0, 256, 1000, 4000});
  c.config.sparse_gradients = dice.one_in(2);
  c.written_out = 0;
  return c;
}

// The same with an optimizer whose ranks exchange signs from the second update on or soon behind it, or with
// compressed gradients.
Case compressed_case(uint64_t seed) {
  Case c = plain_case(seed);
  Dice dice(seed, 7);
  OptimizerConfig& o = c.config.optimizer;
  o.type = dice.pick({"OneBitAdam", "OneBitLamb", "ZeroOneAdam"});
  o.bias_correction = false;
  o.adam_w_mode = true;
  o.lr = 0.01;
  o.weight_decay = dice.pick({0.0, 0.1});
  o.freeze_step = o.var_freeze_step = 1 + dice.below(2);
  o.var_update_scaler = o.local_step_scaler = 1;
  o.local_step_clipper = dice.pick<int64_t>({1, 2, 4});
  if (!dice.one_in(3)) return c;
  o.type = "AdamW";
  c.config.gradient_compression = {dice.pick({"int8", "top_k"}), 0.1};
  return c;
}

// Of stages 0 and 1, and of as many ranks.
Case with_compressed_policy(const Case& c, uint32_t stream) {
  Case out = with_policy(c, stream);
  ZeroConfig& z = out.config.zero;
  z.stage = c.config.optimizer.type == "ZeroOneAdam" ? 0 : z.stage % 2;
  z.param_tier = Tier::device;
  z.mics_shard_size = -1;
  z.hpz_partition_size = 1;
  z.mics_hierarchical_gather = false;
  out.world = c.world;
  out.config.accumulation = c.config.accumulation;
  out.config.nodes = c.world > 1 && c.seed % 2 == 0 ? c.world / 2 : 0;
  out.config.sparse_gradients = false;
  return out;
}

// One graph input over the micro-steps of a call.
struct Input {
  DType dtype = DS_DTYPE_NONE;
  int64_t numel = 0;
  std::vector<std::byte> bytes;

  template <typename T>
  void put(T x) {
    const auto* from = reinterpret_cast<const std::byte*>(&x);
    bytes.insert(bytes.end(), from, from + sizeof x);
    ++numel;
  }
};

// Rows of one leaf: the same whatever the layout of ranks. Ids are of the first parameter, the table.
void draw_rows(const Case& c, size_t k, int step, int64_t leaf, Input& input) {
  const TensorType& type = c.graph.type(c.graph.inputs[k]);
  input.dtype = type.dtype == DS_DTYPE_F32 ? c.config.compute : type.dtype;
  RandomStream stream{c.seed, static_cast<uint32_t>(step), static_cast<uint32_t>(leaf),
                      static_cast<uint32_t>(k)};
  int64_t numel = type.shape.numel(c.rows[step]);
  int64_t table = c.graph.type(c.graph.params[0].value).shape[0].extent;
  for (uint64_t e = 0; e < static_cast<uint64_t>(numel); ++e) {
    float number = static_cast<float>(normal_element(stream, e));
    if (input.dtype == DS_DTYPE_F32) input.put(number);
    if (input.dtype == DS_DTYPE_BF16) input.put(bf16(number));
    const bool dropped = c.config.by_tokens() && k == 1 && (stream.block(e)[1] + leaf) % 3 == 0;
    if (input.dtype == DS_DTYPE_I32)
      input.put(dropped ? -100 : static_cast<int32_t>(stream.block(e)[0] % table));
  }
}

std::vector<Input> draw_inputs(const Case& c, int step, int rank, int64_t first, int64_t micros) {
  std::vector<Input> inputs(2);
  for (int64_t m = first; m < first + micros; ++m) {
    for (size_t k = 0; k < 2; ++k) draw_rows(c, k, step, m * c.world + rank, inputs[k]);
  }
  return inputs;
}

std::vector<InputView> views(const std::vector<Input>& inputs) {
  std::vector<InputView> out;
  for (const Input& in : inputs) out.push_back({in.bytes.data(), in.dtype, in.numel});
  return out;
}

// Everything that must not depend on the policy, by name.
using Payload = std::vector<std::pair<std::string, std::vector<double>>>;

StepResult one_step(const Case& c, Engine& engine, int step, int rank) {
  int64_t micros = c.config.accumulation;
  if (!c.pieces) return engine.train_batch(views(draw_inputs(c, step, rank, 0, micros)));
  for (int64_t m = 0; m < micros; ++m) {
    engine.forward(views(draw_inputs(c, step, rank, m, 1)));
    engine.backward();
  }
  return engine.step();
}

// Steps [first, end) of one policy, from the checkpoint `from` (none: from the start) and, unless `folder` is
// empty, with a checkpoint saved there at the end; returns its path.
std::string run_leg(const Case& c, int first, int end, const std::string& from, const std::string& folder,
                    Payload& out) {
  std::string saved;
  run_ranks(c.world, [&](Communicator& comm) {
    EngineOptions options;
    options.threads = c.threads;
    options.chaos_seed = c.chaos;
    options.programs.written_out = c.written_out;
    Engine engine(c.config, c.graph, comm, options);
    if (!from.empty()) engine.checkpoints().load(from);
    Payload mine;
    for (int s = first; s < end; ++s) {
      StepResult r = one_step(c, engine, s, comm.rank());
      mine.push_back({fmt::format("loss, norm, lr of step {}", s), {r.loss, r.grad_norm, r.lr}});
    }
    std::string path;
    if (!folder.empty()) path = engine.checkpoints().save(folder);
    for (size_t p = 0; p < engine.store().param_names().size() && end == kSteps; ++p) {
      for (const char* kind : {"master", "exp_avg", "exp_avg_sq", "param", "grad"}) {
        std::vector<float> tensor = engine.store().read_tensor(ParamId(p), kind);
        mine.push_back({engine.store().param_names()[p] + " " + kind, {tensor.begin(), tensor.end()}});
      }
    }
    double loss = engine.eval_batch(views(draw_inputs(c, 0, comm.rank(), 0, 1)));
    if (!c.config.reproducible && end == kSteps) mine.push_back({"eval loss", {loss}});
    if (comm.rank() != 0) return;
    out.insert(out.end(), mine.begin(), mine.end());
    saved = path;
  });
  return saved;
}

Payload train(const Case& c) {
  Payload out;
  run_leg(c, 0, kSteps, "", "", out);
  return out;
}

// The first steps under one policy, the rest under another, by way of a checkpoint.
Payload train_two(const Case& before, const Case& after) {
  TempFolder folder;
  Payload out;
  int at = 1 + static_cast<int>(before.seed % (kSteps - 1));
  std::string saved = run_leg(before, 0, at, "", folder.path(), out);
  run_leg(after, at, kSteps, saved, "", out);
  return out;
}

// "" or the first difference.
std::string difference(const Payload& got, const Payload& want) {
  if (got.size() != want.size()) return fmt::format("{} tensors, not {}", got.size(), want.size());
  for (size_t k = 0; k < got.size(); ++k) {
    const auto &a = got[k].second, &b = want[k].second;
    if (got[k].first != want[k].first || a.size() != b.size()) return got[k].first + ": another shape";
    for (size_t i = 0; i < a.size(); ++i) {
      if (std::memcmp(&a[i], &b[i], sizeof(double)) != 0)
        return fmt::format("{} [{}]: {}, not {}", got[k].first, i, a[i], b[i]);
    }
  }
  return "";
}

// "" or what is wrong. Every third case changes its policy on the way to `later`.
std::string check(const Case& plain, const Case& policy, const Case& later) {
  bool two = plain.seed % 3 == 0;
  const Case& other = two ? later : plain;
  std::string what =
      "\n" + policy.text() + (two ? "\nthen " + other.text() : "") + "\n" + policy.graph.print();
  try {
    std::string differs = difference(two ? train_two(policy, other) : train(policy), train(plain));
    return differs.empty() ? "" : differs + what;
  } catch (const std::exception& error) {
    return error.what() + what;
  }
}

// What the policies' programs are made of, so that a test that compares nothing shows.
struct Used {
  std::map<std::string, int> ops;
  int different = 0;
  int long_steps = 0, repeated = 0;

  void add(const Case& plain, const Case& policy) {
    PlanPrograms programs;
    programs.written_out = policy.written_out;
    Program step = compile_plan(policy.graph, policy.config, 0, policy.world, Machine{}, true, programs).step;
    long_steps += policy.config.accumulation > 6;
    repeated += step.repeat.rounds > 1;
    for (const Instr& in : step.instrs) ++ops[in.def->name];
    different +=
        step.print() != compile_plan(plain.graph, plain.config, 0, plain.world, Machine{}).step.print();
  }
};

int64_t setting(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::atoll(text) : otherwise;
}

// Whatever the policy, a long step is compiled at the price of a few micro-steps.
TEST(Property, AnyLongStepRepeats) {
  std::map<int32_t, int> stretches;  // by micro-steps of a round
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    Case c = with_policy(plain_case(seed), 4);
    c.config.accumulation = 1000;
    PlanPrograms programs;
    Program step = compile_plan(c.graph, c.config, 0, c.world, Machine{}, true, programs).step;
    ++stretches[step.repeat.rounds > 1 ? step.repeat.micros : 0];
  }
  EXPECT_LE(stretches[0], 3) << "steps that are written out";
  EXPECT_GT(stretches[1], 100);
}

TEST(Property, AnyProgramParsesBack) {
  int with_runs = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    Case c = with_policy(plain_case(seed), 4);
    int rank = static_cast<int>(seed % static_cast<uint64_t>(c.world));
    Plan plan = compile_plan(c.graph, c.config, rank, c.world, Machine{});
    for (const Program* p : {&plan.init, &plan.refresh, &plan.step, &plan.eval}) {
      std::string text = p->print();
      Program parsed = parse_program(text);
      EXPECT_EQ(parsed.print(), text) << "seed " << seed;
      ASSERT_EQ(parsed.instrs.size(), p->instrs.size()) << "seed " << seed;
      for (InstrId i : p->instrs.ids()) {
        EXPECT_EQ(parsed.instrs[i].runs, p->instrs[i].runs)
            << "seed " << seed << ", instruction " << i.number();
        with_runs += p->instrs[i].runs.size() > 1;
      }
    }
  }
  EXPECT_GT(with_runs, 20);
}

TEST(Property, AnyPolicyIsPolicyNone) {
  int64_t first = setting("DS_PROPERTY_FIRST", 1), cases = setting("DS_PROPERTY_CASES", 40);
  Used used;
  int bad = 0;
  for (int64_t seed = first; seed < first + cases && bad < 20; ++seed) {
    Case plain = plain_case(static_cast<uint64_t>(seed)), policy = with_policy(plain, 4);
    malloc_trim(0);  // engines measure the heap, which takes as long as its free list is
    used.add(plain, policy);
    std::string wrong = check(plain, policy, with_policy(plain, 5));
    bad += !wrong.empty();
    EXPECT_TRUE(wrong.empty()) << wrong;
  }
  if (cases < 40) return;
  EXPECT_GT(used.different, cases * 3 / 4);
  EXPECT_GT(used.long_steps, 4);
  EXPECT_GE(used.repeated, used.long_steps * 9 / 10);
  for (const char* op : {"all_gather", "reduce_scatter", "all_reduce", "fetch", "store", "load", "save",
                         "accumulate", "zero", "dropout", "attention", "embedding_dw"}) {
    EXPECT_GT(used.ops[op], 20) << op;
  }
}

// What a rank reads of its own (gradients, and between synchronisations of 0/1 Adam parameters and momentum)
// is that of rank 0 on both sides.
TEST(Property, AnyPolicyIsPolicyNoneWhereRanksExchangeSigns) {
  int64_t first = setting("DS_PROPERTY_FIRST", 1), cases = setting("DS_PROPERTY_CASES", 40) / 2;
  std::map<std::string, int> types;
  for (int64_t seed = first; seed < first + cases; ++seed) {
    Case plain = compressed_case(static_cast<uint64_t>(seed));
    ++types[plain.config.gradient_compression.on() ? plain.config.gradient_compression.type
                                                   : plain.config.optimizer.type];
    malloc_trim(0);
    std::string wrong = check(plain, with_compressed_policy(plain, 4), with_compressed_policy(plain, 5));
    EXPECT_TRUE(wrong.empty()) << plain.config.optimizer.type << ": " << wrong;
    if (!wrong.empty()) return;
  }
  EXPECT_TRUE(cases < 20 || types.size() == 5);
}

}  // namespace
}  // namespace ds::test
