// Tests parameter groups, whose updates use different optimizer values. Random delegate hosts with
// groups check the exact updates (support/random_host.h); this file tests layouts, calls,
// schedules, checkpoints and refusals.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "checkpoint/manifest.h"
#include "compile/named_params.h"
#include "core/base/json.h"
#include "optim/schedule.h"
#include "support/errors.h"
#include "support/ranks.h"
#include "support/run_engines.h"
#include "support/same_bits.h"
#include "support/temp_folder.h"

namespace ds::test {
namespace {

Point with_groups(int stage, Tier tier = Tier::device) {
  Point p;
  p.stage = stage;
  p.tier = tier;
  p.groups = true;
  return p;
}

std::vector<int32_t> numbers_of(const IdVector<ParamId, int32_t>& groups, int32_t group) {
  std::vector<int32_t> out;
  for (ParamId p : groups.ids()) {
    if (groups[p] == group) out.push_back(static_cast<int32_t>(p.index()));
  }
  return out;
}

// Trains a configuration for `steps` steps on one rank and calls `before` before each step. Returns
// the hash of its states.
std::string train(const Point& p, const Config& config, int steps,
                  const std::function<void(Engine&, int)>& before = {}) {
  auto comm = create_communicator("self", {});
  Engine engine(config, graph_of(p), *comm, {});
  for (int s = 0; s < steps; ++s) {
    if (before) before(engine, s);
    train_step(p, engine, s);
  }
  return state_hash(engine.store());
}

TEST(ParamGroups, HaveTheSameBitsOnEveryLayout) {
  for (const char* optimizer : {"AdamW", "SGD"}) {
    Point first = with_groups(0);
    first.optimizer = optimizer;
    const std::string expected = train_threads(first, 3).hash;
    Point plain = first;
    plain.groups = false;
    EXPECT_NE(train_threads(plain, 3).hash, expected) << "groups change something";
    for (int stage : {1, 2, 3}) {
      for (Tier tier : {Tier::device, Tier::host, Tier::nvme}) {
        Point p = with_groups(stage, tier);
        p.optimizer = optimizer;
        p.bucket_size = 3000;
        EXPECT_EQ(train_threads(p, 3).hash, expected) << p.name();
      }
    }
    Point apart = with_groups(3, Tier::host);
    apart.optimizer = optimizer;
    apart.separate = 3;
    EXPECT_EQ(train_threads(apart, 3).hash, expected) << apart.name();
  }
}

TEST(ParamGroups, AGroupOfAllParametersActsAsTheOptimizer) {
  Point p;
  p.world = 1;
  for (const char* type : {"AdamW", "Adam", "SGD"}) {
    Config direct = config_of(p), grouped = config_of(p);
    direct.optimizer.type = grouped.optimizer.type = type;
    grouped.optimizer.adam_w_mode = direct.optimizer.adam_w_mode = std::string(type) == "AdamW";
    OptimizerConfig& o = direct.optimizer;
    o.lr = 0.0078;
    o.weight_decay = 0.3;
    ParamGroup all{{"*"}, {{"lr", o.lr}, {"weight_decay", o.weight_decay}}};
    if (o.type != "SGD") {
      o.beta1 = 0.6;
      o.beta2 = 0.8;
      o.eps = 1e-4;
      all.values.insert({{"beta1", o.beta1}, {"beta2", o.beta2}, {"eps", o.eps}});
    } else {
      o.momentum = 0.7;
      all.values["momentum"] = o.momentum;
    }
    const std::string before = train(p, grouped, 3);
    grouped.optimizer.groups = {all};
    EXPECT_NE(train(p, grouped, 3), before) << type;
    EXPECT_EQ(train(p, grouped, 3), train(p, direct, 3)) << type;
  }
}

TEST(ParamGroups, ACallEqualsTheConfiguration) {
  Point p = with_groups(0);
  p.world = 1;
  const Config configured = config_of(p);
  Config plain = configured;
  plain.optimizer.groups.clear();
  auto add = [&](Engine& engine, int step) {
    if (step != 0) return;
    IdVector<ParamId, int32_t> groups =
        groups_by_name(configured.optimizer, engine.store().param_names());
    EXPECT_EQ(engine.trained().add_group(numbers_of(groups, 1),
                                         Json::parse(R"({"weight_decay": 0, "lr": 0.002})")),
              1);
    const double beta2 = configured.optimizer.beta2;
    Json betas = Json::Object();
    betas.set("betas", Json(Json::Array{0.5, beta2}));
    EXPECT_EQ(engine.trained().add_group(numbers_of(groups, 2), betas), 2);
  };
  EXPECT_EQ(train(p, plain, 3, add), train(p, configured, 3));
}

TEST(ParamGroups, TheNoDecayRuleSelectsNormsAndBiases) {
  Point p;
  p.world = 1;
  for (int stage : {0, 3}) {
    p.stage = stage;
    Config named = config_of(p), ruled = named;
    named.optimizer.weight_decay = ruled.optimizer.weight_decay = 0.3;
    named.optimizer.groups = {{{"wte.weight"}, {{"lr", 0.5}}},
                              {{"*.bias", "*ln_*.weight"}, {{"weight_decay", 0}}}};
    ruled.optimizer.groups = {named.optimizer.groups[0], {{}, {{"weight_decay", 0}}, true}};
    const std::string expected = train(p, named, 3);
    EXPECT_EQ(train(p, ruled, 3), expected);
    ruled.optimizer.groups.pop_back();
    EXPECT_NE(train(p, ruled, 3), expected);
  }
  // A group of the configuration keeps its parameters, even those with one dimension.
  IdVector<ParamId, std::string> names;
  for (const char* name : {"w", "b", "n"}) names.push_back(name);
  IdVector<ParamId, size_t> dims;
  for (size_t d : {2, 1, 1}) dims.push_back(d);
  Config c;
  c.optimizer.groups = {{{"n"}, {{"lr", 1}}}, {{}, {{"weight_decay", 0}}, true}};
  IdVector<ParamId, int32_t> groups = groups_by_name(c.optimizer, names, dims);
  EXPECT_EQ(groups[ParamId(0)], 0);
  EXPECT_EQ(groups[ParamId(1)], 2);
  EXPECT_EQ(groups[ParamId(2)], 1);
}

TEST(ParamGroups, SetAppliesFromTheNextStepOn) {
  Point p = with_groups(0);
  p.world = 1;
  Config still = config_of(p);
  auto comm = create_communicator("self", {});
  Engine engine(still, graph_of(p), *comm, {});
  train_step(p, engine, 0);
  engine.set("param_groups[1].lr", 0);
  engine.set("param_groups[1].weight_decay", 0);
  EXPECT_EQ(engine.control().get("param_groups[1].lr"), 0);
  EXPECT_EQ(engine.control().get("param_groups[2].lr"), still.optimizer.lr);
  IdVector<ParamId, int32_t> groups = groups_by_name(still.optimizer, engine.store().param_names());
  std::vector<std::vector<float>> before;
  for (ParamId i : groups.ids()) before.push_back(engine.store().read_tensor(i, "master"));
  train_step(p, engine, 1);
  for (ParamId i : groups.ids()) {
    bool same = engine.store().read_tensor(i, "master") == before[i.index()];
    EXPECT_EQ(same, groups[i] == 1) << engine.store().param_names()[i];
  }
  engine.set("lr", 0.5);
  EXPECT_EQ(engine.control().get("param_groups[1].lr"), 0.5) << "a name without a group is of all";
  engine.set("lr", std::nan(""));
  EXPECT_EQ(engine.control().get("param_groups[1].lr"), 0.002) << "the configuration's again";
  EXPECT_EQ(engine.control().get("param_groups[1].weight_decay"), 0);
  EXPECT_EQ(engine.control().get("param_groups"), 3);
}

TEST(ParamGroups, AScheduleBeginsFromTheGroupsRate) {
  Point p = with_groups(0);
  p.world = 1;
  Config c = config_of(p);
  c.scheduler = make_schedule("WarmupCosineLR", {{"total_num_steps", 6}, {"warmup_num_steps", 2}});
  auto learning_rate = [&](double lr, int64_t step) {
    GroupScalars scalars{.lr = lr};
    apply_schedule(c.scheduler, 0, step, scalars);
    return scalars.lr;
  };
  auto comm = create_communicator("self", {});
  Engine engine(c, graph_of(p), *comm, {});
  for (int s = 0; s < 6; ++s) {
    EXPECT_EQ(engine.control().get("lr"), learning_rate(c.optimizer.lr, s));
    EXPECT_EQ(engine.control().get("param_groups[1].lr"), learning_rate(0.002, s));
    EXPECT_EQ(train_step(p, engine, s).lr, learning_rate(c.optimizer.lr, s));
  }
}

TEST(ParamGroups, ValuesThatWereSetArePartOfACheckpoint) {
  TempFolder folder;
  std::vector<std::string> hashes(4);
  for (int stage : {0, 3}) {
    run_ranks(2, [&](Communicator& comm) {
      Point p = with_groups(stage);
      Engine engine(config_of(p), graph_of(p), comm, {});
      if (stage == 0) {
        train_step(p, engine, 0);
        engine.set("param_groups[2].beta1", 0.25);
        engine.set("lr", 0.004);
        engine.checkpoints().save(folder.path());
      } else {
        // The checkpoint has no such value, so the load discards it.
        engine.set("param_groups[1].eps", 1e-3);
        engine.checkpoints().load(folder.path());
      }
      train_step(p, engine, 1);
      // Every rank must compute the hash, because this is a collective.
      std::string hash = state_hash(engine.store());
      if (comm.rank() == 0) hashes[static_cast<size_t>(stage)] = hash;
    });
  }
  EXPECT_EQ(hashes[0], hashes[3]);
}

TEST(ParamGroups, ImpossibleGroupsAreRefused) {
  auto comm = create_communicator("self", {});
  Point p;
  p.world = 1;
  auto refusal = [&](std::vector<ParamGroup> groups) {
    Config c = config_of(p);
    c.optimizer.groups = std::move(groups);
    return message_of([&] { Engine(c, graph_of(p), *comm, {}); }, DS_ERROR_CONFIG);
  };
  expect_names(refusal({{{"*.bais"}, {}}}),
               {"optimizer.param_groups[0].params", "'*.bais' matches none of"});
  expect_names(refusal({{{"*.bias"}, {}}, {{"h.*"}, {}}}),
               {"optimizer.param_groups[1].params", "is also in optimizer.param_groups[0]"});
  Engine engine(config_of(p), graph_of(p), *comm, {});
  const std::vector<int32_t> one{0}, none{}, beyond{0, 99};
  auto refuse = [&](const std::vector<int32_t>& params, const char* options, ds_status status) {
    return message_of([&] { engine.trained().add_group(params, Json::parse(options)); }, status);
  };
  expect_names(refuse(none, "{}", DS_ERROR_INVALID_ARGUMENT),
               {"params must name at least one parameter"});
  expect_names(refuse(beyond, "{}", DS_ERROR_INVALID_ARGUMENT), {"param must be 0 to", "99"});
  expect_names(refuse(one, R"({"lt": 1})", DS_ERROR_CONFIG), {"options.lt", "did you mean 'lr'?"});
  expect_names(refuse(one, R"({"params": ["*"]})", DS_ERROR_CONFIG), {"options.params"});
  expect_names(refuse(one, R"({"momentum": 0.9})", DS_ERROR_CONFIG), {"options.momentum", "AdamW"});
  expect_names(refuse(one, R"({"betas": [0.9]})", DS_ERROR_CONFIG),
               {"options.betas", "two numbers"});
  expect_names(refuse(one, R"({"betas": [0.9, 1]})", DS_ERROR_CONFIG), {"options.betas[1]", "1"});
  expect_names(refuse(one, R"({"lr": -1})", DS_ERROR_CONFIG), {"options.lr", "-1"});
  expect_names(refuse(one, "[]", DS_ERROR_CONFIG), {"options: expected an object"});
  auto set = [&](const char* name, double value, ds_status status) {
    return message_of([&] { engine.set(name, value); }, status);
  };
  expect_names(set("param_groups[1].lr", 1, DS_ERROR_NOT_FOUND), {"0 to 0, got 1"});
  expect_names(set("param_groups[x].lr", 1, DS_ERROR_NOT_FOUND), {"param_groups[x].lr"});
  expect_names(set("param_groups[0]", 1, DS_ERROR_NOT_FOUND), {"param_groups[0]"});
  expect_names(set("momentum", 1, DS_ERROR_NOT_FOUND), {"momentum", "beta1"});
  expect_names(set("beta1", 1, DS_ERROR_INVALID_ARGUMENT), {"beta1", "below 1", "got 1"});
  // The engine is still usable.
  train_step(p, engine, 0);
  EXPECT_EQ(engine.control().get("param_groups"), 1);
}

// Calls refuse the groups and values that the configuration refuses.
// Proves {engine.group_add.rate}.
TEST(ParamGroups, CallsObeyTheRulesOfTheConfiguration) {
  struct Rule {
    const char *optimizer, *schedule, *number;
    double value;
    std::vector<std::string> words;
  };
  const Rule rules[] = {
      {"SGD", "warmup_max_lr", "lr", 0.5, {"0.5", "warmup_max_lr 0.25"}},
      {"SGD", "cycle_min_lr", "lr", 0.5, {"0.5", "cycle_min_lr 0.25", "a list"}},
      {"AdamW", "lr_range_test_min_lr", "lr", 0.5, {"0.5", "lr_range_test_min_lr 0.25"}},
      {"Muon", "warmup_max_lr", "adam_lr", 0.5, {"0.5", "warmup_max_lr 0.25"}},
      // Here the schedule has the default of warmup_max_lr.
      {"SGD", "decay", "lr", 0.5, {"0.5", "warmup_max_lr 0.001", "a list"}},
      {"Muon", "", "momentum", 1, {"below 1", "got 1"}},
      {"SGD", "", "momentum", 0, {"nesterov", "got 0"}},
  };
  for (const Rule& rule : rules) {
    SCOPED_TRACE(std::string(rule.optimizer) + " " + rule.schedule + " " + rule.number);
    Point p;
    p.world = p.leaves = 1;
    p.optimizer = rule.optimizer;
    Config c = config_of(p);
    const std::string absolute = rule.schedule;
    if (absolute == "warmup_max_lr") c.scheduler = make_schedule("WarmupLR", {{absolute, 0.25}});
    if (absolute == "decay") c.scheduler = make_schedule("WarmupDecayLR", {{"total_num_steps", 9}});
    if (absolute == "cycle_min_lr")
      c.scheduler = make_schedule("OneCycle", {{absolute, 0.25}, {"cycle_max_lr", 1}});
    if (absolute == "lr_range_test_min_lr")
      c.scheduler = make_schedule("LRRangeTest", {{absolute, 0.25}});
    c.optimizer.nesterov = rule.value == 0;
    run_engines(p, c, [&](Engine& engine) {
      const double before = *engine.control().get(rule.number);
      Json options;
      options.set(rule.number, rule.value);
      expect_names(message_of([&] { engine.trained().add_group(std::vector<int32_t>{0}, options); },
                              DS_ERROR_CONFIG),
                   rule.words);
      if (absolute.empty())
        expect_names(
            message_of([&] { engine.set(rule.number, rule.value); }, DS_ERROR_INVALID_ARGUMENT),
            rule.words);
      EXPECT_EQ(engine.control().get(rule.number), before);
      EXPECT_EQ(engine.control().get("param_groups"), 1);
    });
  }
}

TEST(ParamGroups, RanksThatDifferAreNamed) {
  run_ranks(3, [&](Communicator& comm) {
    Point p;
    p.world = 3;
    p.leaves = 3;
    Engine engine(config_of(p), graph_of(p), comm, {});
    const std::vector<int32_t> mine{comm.rank() == 2 ? 1 : 0};
    expect_names(message_of([&] { engine.trained().add_group(mine, Json(Json::Object())); },
                            DS_ERROR_CONFIG),
                 {"ds_engine_group_add", "rank 2"});
    const char* options = comm.rank() == 1 ? R"({"lr": 0.5})" : R"({"lr": 0.25})";
    expect_names(
        message_of(
            [&] { engine.trained().add_group(std::vector<int32_t>{0}, Json::parse(options)); },
            DS_ERROR_CONFIG),
        {"ds_engine_group_add", "rank 1"});
    train_step(p, engine, 0);
  });
}

}  // namespace
}  // namespace ds::test
