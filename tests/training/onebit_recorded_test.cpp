// 1-bit optimizers against numbers that DeepSpeed 0.19.6 recorded (onebit.json), on every rank of several.
#include <gtest/gtest.h>

#include <cmath>
#include <initializer_list>
#include <set>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "core/config/config.h"
#include "engine/engine.h"
#include "optim/optimizer.h"
#include "support/ranks.h"
#include "support/record.h"
#include "support/semantics.h"

namespace ds::test::onebit_recorded {
namespace {

// signs_test.cpp reads the first one.
Recording recorded() {
  return {semantics_path("onebit.json"), {"allreduce", "onebit_adam", "zero_one_adam", "onebit_lamb"}};
}

// Tensor i of a case has its gradients of every step given: the loss is the sum of mse(p, target), whose
// gradient is 2 (p - target) / numel.
struct Replay {
  const Record& json;
  Tolerance tolerance;
  RecordedTensors tensors{semantics_path("onebit.safetensors")};
  std::string name = json.at("name").string();
  int workers = static_cast<int>(json.at("workers").integer());
  size_t steps = static_cast<size_t>(json.at("steps").integer());
  std::vector<int64_t> numels;

  Replay(const Record& given, const Tolerance& allowed) : json(given), tolerance(allowed) {
    for (const Json& shape : json.at("shapes").array()) {
      int64_t numel = 1;
      for (const Json& extent : shape.array()) numel *= extent.integer();
      numels.push_back(numel);
    }
  }

  std::vector<float> read(const std::string& what, size_t i) const {
    return tensors.read(name + "." + what + "." + std::to_string(i));
  }
  // Of one step and worker.
  std::vector<float> slice(const std::vector<float>& all, size_t i, size_t step, int worker) const {
    auto numel = static_cast<size_t>(numels[i]);
    auto first =
        all.begin() +
        static_cast<int64_t>((step * static_cast<size_t>(workers) + static_cast<size_t>(worker)) * numel);
    return {first, first + numels[i]};
  }

  Graph graph() const {
    Graph g;
    g.bound = 1;
    ValueId loss;
    for (size_t i = 0; i < numels.size(); ++i) {
      std::string n = std::to_string(i);
      TensorType type{DS_DTYPE_F32, {numels[i]}};
      ValueId one = g.add("mse", {g.add_param("p" + n, type, {"zeros", 0}), g.add_input("t" + n, type)});
      loss = i == 0 ? one : g.add("add", {loss, one});
    }
    g.add_output("loss", loss);
    return g;
  }
};

int64_t differing(const std::vector<float>& got, const std::vector<float>& want, const Tolerance& tolerance) {
  EXPECT_EQ(got.size(), want.size());
  int64_t count = 0;
  for (size_t e = 0; e < got.size(); ++e) {
    double off = std::abs(static_cast<double>(got[e]) - static_cast<double>(want[e]));
    count += !(off <= tolerance.of(static_cast<double>(want[e])));
  }
  return count;
}

// Steps of DeepSpeed behind its first one, which is a dry run, so that freeze_step counts one less.
void replay(const Record& json, const Tolerance& tolerance, Json optimizer, int stage) {
  const Replay r(json, tolerance);
  Json document;
  document.set("train_micro_batch_size_per_gpu", 1);
  document.set("gradient_accumulation_steps", 1);
  document.set("gradient_clipping", 0.0);
  document.set("zero_optimization", Json::Object{{"stage", stage}});
  document.set("optimizer", std::move(optimizer));
  const Config config = parse_config(document, r.workers);
  run_ranks(r.workers, [&](Communicator& comm) {
    Engine engine(config, r.graph(), comm, {});
    std::vector<std::vector<float>> grads, results;
    for (size_t i = 0; i < r.numels.size(); ++i) {
      engine.store().write_tensor(ParamId(i), "param", r.read("param", i));
      grads.push_back(r.read("grad", i));
      results.push_back(r.read("result", i));
    }
    int64_t off = 0;
    for (size_t s = 1; s < r.steps; ++s) {
      std::vector<std::vector<float>> targets;
      std::vector<InputView> inputs;
      for (size_t i = 0; i < r.numels.size(); ++i) {
        std::vector<float> p = engine.store().read_tensor(ParamId(i), "param");
        std::vector<float> g = r.slice(grads[i], i, s, comm.rank());
        for (size_t e = 0; e < p.size(); ++e) g[e] = p[e] - static_cast<float>(r.numels[i]) / 2 * g[e];
        targets.push_back(std::move(g));
      }
      for (const std::vector<float>& t : targets)
        inputs.push_back({t.data(), DS_DTYPE_F32, static_cast<int64_t>(t.size())});
      ASSERT_FALSE(engine.train_batch(inputs).skipped);
      for (size_t i = 0; i < r.numels.size(); ++i) {
        off += differing(engine.store().read_tensor(ParamId(i), "param"),
                         r.slice(results[i], i, s, comm.rank()), tolerance);
      }
      ASSERT_EQ(off, 0) << r.name << " stage " << stage << " step " << s + 1 << " rank " << comm.rank();
    }
    for (size_t i = 0; i < r.numels.size(); ++i) {
      for (const char* kind : {"exp_avg", "exp_avg_sq"}) {
        EXPECT_EQ(differing(engine.store().read_tensor(ParamId(i), kind),
                            r.slice(r.read(kind, i), i, 0, comm.rank()), tolerance),
                  0)
            << r.name << " " << kind << " of " << i;
      }
    }
  });
}

// What a case says beside its own layout is a parameter, which the configuration knows or refuses.
Json params_of(const Record& c) {
  Json params{Json::Object()};
  for (const auto& [name, value] : c.all().object()) {
    if (name == "name" || name == "workers" || name == "shapes" || name == "steps" || name == "trace")
      continue;
    params.set(name, name == "freeze_step" ? Json(value.integer() - 1) : value);
  }
  return params;
}

OptimizerConfig optimizer_config(const char* type, const Record& c) {
  Json document;
  document.set("train_batch_size", 2);
  document.set("optimizer", Json::Object{{"type", type}, {"params", params_of(c)}});
  return parse_config(document, 2).optimizer;
}

// DeepSpeed's own counters say which steps reduce gradients and which are behind the freeze. trace[k] is of
// step k + 1; its first one is DeepSpeed's dry run. Returns the records, for what else they have.
std::vector<Record> follow_trace(const char* type, const Record& c, std::set<StepForm>& seen) {
  const OptimizerConfig config = optimizer_config(type, c);
  std::vector<Record> trace = c.list("trace");
  EXPECT_EQ(static_cast<int64_t>(trace.size()), c.at("steps").integer());
  for (size_t k = 0; k < trace.size(); ++k) {
    EXPECT_EQ(trace[k].at("step").integer(), static_cast<int64_t>(k) + 1);
    const bool reduces = trace[k].at("engine_reduced_gradients").boolean();
    trace[k].at("frozen");
    if (k == 0) {
      EXPECT_TRUE(reduces);
      continue;
    }
    const StepForm form = optimizer_of(config).form(config, static_cast<int64_t>(k) - 1);
    seen.insert(form);
    EXPECT_EQ(form == StepForm::reduced, reduces) << k;
    const bool frozen = trace[k - 1].at("frozen").boolean();
    EXPECT_EQ(form != StepForm::reduced && form != StepForm::gradients, frozen) << k;
  }
  return trace;
}

// libds keeps neither of these; they are DeepSpeed's way to the results that are compared.
constexpr std::initializer_list<const char*> kOnTheWay = {
    "var_interval", "var_counter", "local_step_interval", "local_step_counter", "lrs",
    "lamb_coeff",   "last_factor", "lamb_coeff_freeze",   "scaling_coeff"};

void expect_recorded(const char* list, const char* type, const std::vector<int>& stages) {
  const Recording all = recorded();
  for (const Record& c : all.list(list)) {
    const Json params = params_of(c);
    std::set<StepForm> seen;
    for (const Record& step : follow_trace(type, c, seen)) step.told(kOnTheWay);
    for (int stage : stages)
      replay(c, all.tolerance(), Json::Object{{"type", type}, {"params", params}}, stage);
  }
}

TEST(OneBitRecorded, AdamFollowsDeepSpeed) { expect_recorded("onebit_adam", "OneBitAdam", {0, 1}); }

TEST(OneBitRecorded, ZeroOneAdamFollowsDeepSpeed) { expect_recorded("zero_one_adam", "ZeroOneAdam", {0}); }

TEST(OneBitRecorded, LambFollowsDeepSpeed) { expect_recorded("onebit_lamb", "OneBitLamb", {0, 1}); }

// The steps behind which ranks agree, and the intervals between them, which double.
TEST(OneBitRecorded, ZeroOneAdamsIntervalsAreDeepSpeeds) {
  const Recording all = recorded();
  std::set<StepForm> seen;
  for (const Record& c : all.list("zero_one_adam")) {
    SCOPED_TRACE(c.at("name").string());
    const OptimizerConfig config = optimizer_config("ZeroOneAdam", c);
    const std::vector<Record> trace = follow_trace("ZeroOneAdam", c, seen);
    double rates = 0;
    for (size_t k = 0; k < trace.size(); ++k) {
      trace[k].told(kOnTheWay);
      if (k == 0) continue;
      const StepForm form = optimizer_of(config).form(config, static_cast<int64_t>(k) - 1);
      const bool local = form == StepForm::local;
      rates = local ? rates + c.at("lr").number() : 0;
      EXPECT_NEAR(trace[k].at("lrs").number(), rates, 1e-9) << k;
      const int64_t of_variance = trace[k - 1].at("var_interval").integer(),
                    of_steps = trace[k - 1].at("local_step_interval").integer(),
                    before = static_cast<int64_t>(k);
      // DeepSpeed asks for the variance before it counts the step, and for the synchronisation behind that.
      if (!trace[k - 1].at("frozen").boolean()) {
        EXPECT_EQ(form == StepForm::reduced, (before + 1) % of_variance == 0) << k;
      } else {
        EXPECT_EQ(local, (before + 1) % of_steps != 0) << k;
      }
    }
  }
  EXPECT_EQ(seen.size(), 5u);
}

}  // namespace
}  // namespace ds::test::onebit_recorded
