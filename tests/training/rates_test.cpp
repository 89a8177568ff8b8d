// Tests learning rates that are configured, scheduled, set and scaled, for every optimizer and for
// groups, in random combinations. The expected results are computed independently in two ways: the
// rates by the loops below, and the states by engines that each train one step with a configuration
// that has these rates from the beginning.
//
// DS_RATE_SEEDS=1000:3000 draws seeds 1000 to 2999 instead of the default ones.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "optim/schedule.h"
#include "support/dice.h"
#include "support/run_engines.h"
#include "support/temp_folder.h"

namespace ds::test {
namespace {

constexpr int kSteps = 6;

// The rates of a group. Muon has one for matrices and one for all other parameters; other
// optimizers use only `first`.
struct Rates {
  double first = 0, second = 0;
};

struct Setting {
  // If nullopt, the setting applies to all groups.
  std::optional<size_t> group;
  std::string name;
  // If nullopt, the setting returns to its configured or scheduled value.
  std::optional<double> value;
  std::string path() const {
    return group ? "param_groups[" + std::to_string(*group) + "]." + name : name;
  }
};

// The calls before a step.
struct Before {
  std::vector<Setting> settings;
  // Whether another engine continues from a checkpoint first.
  bool reload = false;
  double factor = 1;
};

struct RateCase {
  Point point;
  Config config;
  std::string schedule;
  std::vector<Before> steps;
  bool muon() const { return point.optimizer == "Muon"; }
};

// Returns a rate; all products of these rates are exact.
double rate_of(Dice& dice) { return dice.pick({0x1p-9, 0x1p-8, 0x1p-7, 0x3p-9, 0x5p-10}); }

std::vector<std::string> rate_names(const RateCase& c) {
  return c.muon() ? std::vector<std::string>{"lr", "muon_lr", "adam_lr"}
                  : std::vector<std::string>{"lr"};
}

std::string one_of(const std::vector<std::string>& names, Dice& dice) {
  return names[static_cast<size_t>(dice.below(static_cast<int64_t>(names.size())))];
}

void draw_schedule(RateCase& c, Dice& dice) {
  c.schedule = dice.pick({"", "", "constant", "linear", "WarmupLR"});
  if (c.schedule == "constant")
    c.config.scheduler = make_schedule("constant", {{"warmup_num_steps", 4}});
  if (c.schedule == "linear")
    c.config.scheduler =
        make_schedule("linear", {{"warmup_num_steps", 2}, {"total_num_steps", 10}});
  if (c.schedule != "WarmupLR") return;
  c.config.scheduler =
      make_schedule("WarmupLR", {{"warmup_num_steps", 4}, {"warmup_min_lr", 0x1p-10}});
  c.config.scheduler.words["warmup_type"] = "linear";
}

RateCase draw(uint64_t seed) {
  RateCase c;
  Dice dice(seed, 7);
  c.point.world = static_cast<int>(dice.pick({1, 2}));
  c.point.leaves = 2;
  c.point.compute = dice.pick({DS_DTYPE_F32, DS_DTYPE_BF16});
  c.point.optimizer = dice.pick({"AdamW", "Adam", "SGD", "Lion", "Adagrad", "Lamb", "OneBitAdam",
                                 "ZeroOneAdam", "OneBitLamb", "Muon", "Muon", "Muon"});
  c.config = config_of(c.point);
  OptimizerConfig& o = c.config.optimizer;
  c.point.stage = static_cast<int>(o.compressed() ? dice.pick({0, 1}) : dice.below(4));
  c.config.zero.stage = c.point.stage;
  o.lr = rate_of(dice);
  o.muon_lr.reset();
  o.adam_lr.reset();
  if (c.muon() && dice.one_in(2)) o.muon_lr = rate_of(dice);
  if (c.muon() && dice.one_in(2)) o.adam_lr = rate_of(dice);
  o.groups.clear();
  if (dice.one_in(2)) o.groups.push_back({{"*.bias", "*ln_*.weight"}, {{"weight_decay", 0}}});
  if (dice.one_in(2)) o.groups.push_back({{"wte.weight", "*attn*.weight"}, {}});
  for (ParamGroup& group : o.groups) {
    for (const std::string& name : rate_names(c)) {
      if (dice.one_in(3)) group.values[name] = rate_of(dice);
    }
  }
  draw_schedule(c, dice);
  for (int s = 0; s < kSteps; ++s) {
    Before before;
    while (dice.one_in(2)) {
      Setting setting;
      if (dice.one_in(2))
        setting.group = static_cast<size_t>(dice.below(static_cast<int64_t>(o.groups.size() + 1)));
      setting.name = one_of(rate_names(c), dice);
      if (!dice.one_in(4)) setting.value = dice.one_in(4) ? 0 : rate_of(dice);
      before.settings.push_back(setting);
    }
    before.reload = s > 0 && dice.one_in(3);
    if (dice.one_in(3)) before.factor = dice.pick({0.0, 0.5, 2.0, 5.0});
    c.steps.push_back(before);
  }
  return c;
}

// --- expected results, without code of src ---

Rates configured(const RateCase& c, size_t group) {
  const OptimizerConfig& o = c.config.optimizer;
  Rates rates{o.muon_lr.value_or(o.lr), o.adam_lr.value_or(o.lr)};
  if (group == 0) return rates;
  const std::map<std::string, double>& own = o.groups[group - 1].values;
  if (own.contains("lr")) rates = {own.at("lr"), own.at("lr")};
  if (own.contains("muon_lr")) rates.first = own.at("muon_lr");
  if (own.contains("adam_lr")) rates.second = own.at("adam_lr");
  return rates;
}

double scheduled(const RateCase& c, double rate, int update) {
  if (c.schedule == "constant") return rate * std::min(1.0, update / 4.0);
  if (c.schedule == "linear") return rate * (update < 2 ? update / 2.0 : (10 - update) / 8.0);
  if (c.schedule == "WarmupLR") return 0x1p-10 + std::max(0, update - 1) / 4.0 * (rate - 0x1p-10);
  return rate;
}

// A model of the rates that were set, by group.
class Expected {
 public:
  explicit Expected(const RateCase& c)
      : case_(c), first_(c.config.optimizer.groups.size() + 1), second_(first_) {}

  void set(const Setting& setting) {
    for (size_t g = 0; g < first_.size(); ++g) {
      if (setting.group && *setting.group != g) continue;
      if (setting.name != "adam_lr") first_[g] = setting.value;
      if (setting.name != "muon_lr") second_[g] = setting.value;
    }
  }
  Rates at(size_t group, int update, double factor) const {
    const Rates own = configured(case_, group);
    return {factor * first_[group].value_or(scheduled(case_, own.first, update)),
            factor * second_[group].value_or(scheduled(case_, own.second, update))};
  }
  // Returns a configuration that has the rates of this update from the beginning.
  Config config(int update, double factor) const {
    Config out = case_.config;
    out.scheduler = {};
    OptimizerConfig& o = out.optimizer;
    auto give = [&](const Rates& rates, const auto& put) {
      if (!case_.muon()) return put("lr", rates.first);
      put("muon_lr", rates.first);
      put("adam_lr", rates.second);
    };
    give(at(0, update, factor), [&](const std::string& name, double rate) {
      (name == "lr" ? o.lr : name == "muon_lr" ? o.muon_lr.emplace() : o.adam_lr.emplace()) = rate;
    });
    for (size_t g = 0; g < o.groups.size(); ++g) {
      o.groups[g].values.erase("lr");
      give(at(g + 1, update, factor),
           [&](const std::string& name, double rate) { o.groups[g].values[name] = rate; });
    }
    return out;
  }

 private:
  const RateCase& case_;
  std::vector<std::optional<double>> first_, second_;
};

void expect_rates(const RateCase& c, const StepControl& control, const Expected& expected,
                  int update) {
  for (size_t g = 0; g <= c.config.optimizer.groups.size(); ++g) {
    const Rates want = expected.at(g, update, 1);
    const std::string at = "param_groups[" + std::to_string(g) + "].";
    EXPECT_EQ(control.get(at + "lr"), want.first) << at;
    if (!c.muon()) continue;
    EXPECT_EQ(control.get(at + "muon_lr"), want.first) << at;
    EXPECT_EQ(control.get(at + "adam_lr"), want.second) << at;
  }
}

// Trains the engine under test, and continues with a new engine after each reload. Returns the
// checkpoint saved after each step.
std::vector<std::string> run_case(const RateCase& c, const std::string& folder) {
  std::vector<std::string> saved;
  Expected expected(c);
  for (int s = 0; s < kSteps;) {
    int end = s + 1;
    while (end < kSteps && !c.steps[static_cast<size_t>(end)].reload) ++end;
    std::vector<std::string> paths(static_cast<size_t>(end));
    run_engines(c.point, c.config, [&](Engine& engine) {
      Expected mine = expected;
      const bool root = engine.runtime().comm().rank() == 0;
      if (s > 0) engine.checkpoints().load(saved.back());
      for (int k = s; k < end; ++k) {
        const Before& before = c.steps[static_cast<size_t>(k)];
        for (const Setting& setting : before.settings) {
          engine.set(setting.path(), setting.value.value_or(std::nan("")));
          mine.set(setting);
        }
        if (root) expect_rates(c, engine.control(), mine, k);
        engine.scale_rates(before.factor);
        const StepResult result = train_step(c.point, engine, k);
        EXPECT_FALSE(result.skipped) << result.reason;
        EXPECT_EQ(result.lr, mine.at(0, k, before.factor).first) << "step " << k;
        const std::string path = engine.checkpoints().save(folder + "/run");
        if (root) paths[static_cast<size_t>(k)] = path;
      }
    });
    for (int k = s; k < end; ++k) saved.push_back(paths[static_cast<size_t>(k)]);
    for (; s < end; ++s) {
      for (const Setting& setting : c.steps[static_cast<size_t>(s)].settings) expected.set(setting);
    }
  }
  return saved;
}

// Trains every step with a new engine whose configuration has the step's rates. Returns the hash of
// the states after each step.
std::vector<std::string> run_configured(const RateCase& c, const std::string& folder) {
  std::vector<std::string> hashes;
  Expected expected(c);
  std::string last;
  for (int s = 0; s < kSteps; ++s) {
    const Before& before = c.steps[static_cast<size_t>(s)];
    for (const Setting& setting : before.settings) expected.set(setting);
    std::string path;
    hashes.push_back(run_engines(c.point, expected.config(s, before.factor), [&](Engine& engine) {
      if (!last.empty()) engine.checkpoints().load(last);
      train_step(c.point, engine, s);
      const std::string made = engine.checkpoints().save(folder + "/configured");
      if (engine.runtime().comm().rank() == 0) path = made;
    }));
    last = path;
  }
  return hashes;
}

std::string hash_of(const RateCase& c, const std::string& checkpoint) {
  return run_engines(c.point, c.config,
                     [&](Engine& engine) { engine.checkpoints().load(checkpoint); });
}

TEST(Rates, SetRatesEqualConfiguredOnesForEveryOptimizer) {
  uint64_t first = 0, end = 10;
  if (const char* wanted = std::getenv("DS_RATE_SEEDS")) {
    char* rest = nullptr;
    first = std::strtoull(wanted, &rest, 10);
    end = *rest == ':' ? std::strtoull(rest + 1, nullptr, 10) : first + 1;
  }
  for (uint64_t seed = first; seed < end && !HasFailure(); ++seed) {
    const RateCase c = draw(seed);
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + c.point.name() + " " + c.schedule + ", " +
                 std::to_string(c.config.optimizer.groups.size()) + " groups");
    TempFolder folder;
    const std::vector<std::string> saved = run_case(c, folder.path()),
                                   wanted = run_configured(c, folder.path());
    ASSERT_EQ(saved.size(), wanted.size());
    for (size_t s = 0; s < saved.size(); ++s)
      EXPECT_EQ(hash_of(c, saved[s]), wanted[s]) << "after step " << s;
  }
}

// A rate of 0 stops every parameter, and the later of two settings applies.
TEST(Rates, ARateOfZeroStopsAllOfMuon) {
  Point p;
  p.world = 1;
  p.optimizer = "Muon";
  run_engines(p, config_of(p), [&](Engine& engine) {
    train_step(p, engine, 0);
    auto masters = [&] {
      std::vector<std::vector<float>> all;
      for (size_t i = 0; i < engine.store().param_names().size(); ++i)
        all.push_back(engine.store().read_tensor(ParamId(i), "master"));
      return all;
    };
    const auto one = masters();
    engine.set("adam_lr", 0.5);
    engine.set("lr", 0);
    train_step(p, engine, 1);
    EXPECT_EQ(masters(), one);
    engine.set("muon_lr", 0.5);
    EXPECT_EQ(engine.control().get("lr"), 0.5);
    EXPECT_EQ(engine.control().get("adam_lr"), 0);
    engine.set("adam_lr", std::nan(""));
    EXPECT_EQ(engine.control().get("adam_lr"), 0.003);
    engine.set("lr", std::nan(""));
    EXPECT_EQ(engine.control().get("muon_lr"), config_of(p).optimizer.lr);
  });
}

}  // namespace
}  // namespace ds::test
