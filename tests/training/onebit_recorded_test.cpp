// 1-bit optimizers against numbers that DeepSpeed 0.19.6 recorded (onebit.json), on every rank of several.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "core/config/config.h"
#include "engine/engine.h"
#include "optim/optimizer.h"
#include "support/ranks.h"
#include "support/semantics.h"

namespace ds::test::onebit_recorded {
namespace {

Json recorded() {
  const std::string path = semantics_path("onebit.json");
  std::ifstream file(path);
  return Json::parse(std::string(std::istreambuf_iterator<char>(file), {}), path);
}

// Tensor i of a case has its gradients of every step given: the loss is the sum of mse(p, target), whose
// gradient is 2 (p - target) / numel.
struct Replay {
  const Json& json;
  RecordedTensors tensors{semantics_path("onebit.safetensors")};
  std::string name = json.at("name").string();
  int workers = static_cast<int>(json.at("workers").integer());
  size_t steps = static_cast<size_t>(json.at("steps").integer());
  std::vector<int64_t> numels;

  explicit Replay(const Json& given) : json(given) {
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

int64_t differing(const std::vector<float>& got, const std::vector<float>& want) {
  EXPECT_EQ(got.size(), want.size());
  int64_t count = 0;
  for (size_t e = 0; e < got.size(); ++e) {
    double off = std::abs(static_cast<double>(got[e]) - static_cast<double>(want[e]));
    count += !(off <= 1e-6 + 1e-5 * std::abs(static_cast<double>(want[e])));
  }
  return count;
}

// Steps of DeepSpeed behind its first one, which is a dry run, so that freeze_step counts one less.
void replay(const Json& json, Json optimizer, int stage) {
  const Replay r(json);
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
                         r.slice(results[i], i, s, comm.rank()));
      }
      ASSERT_EQ(off, 0) << r.name << " stage " << stage << " step " << s + 1 << " rank " << comm.rank();
    }
    for (size_t i = 0; i < r.numels.size(); ++i) {
      for (const char* kind : {"exp_avg", "exp_avg_sq"}) {
        EXPECT_EQ(differing(engine.store().read_tensor(ParamId(i), kind),
                            r.slice(r.read(kind, i), i, 0, comm.rank())),
                  0)
            << r.name << " " << kind << " of " << i;
      }
    }
  });
}

Json params_of(const Json& c) {
  Json params{Json::Object()};
  for (const char* key : {"lr", "weight_decay", "betas"}) {
    if (const Json* given = c.find(key)) params.set(key, *given);
  }
  return params;
}

TEST(OneBitRecorded, AdamFollowsDeepSpeed) {
  const Json all = recorded();
  for (const Json& c : all.at("onebit_adam").array()) {
    for (int stage : {0, 1}) {
      Json params = params_of(c);
      params.set("freeze_step", c.at("freeze_step").integer() - 1);
      replay(c, Json::Object{{"type", "OneBitAdam"}, {"params", params}}, stage);
    }
  }
}

Json zero_one_params(const Json& c) {
  Json params = params_of(c);
  for (const char* key : {"var_freeze_step", "var_update_scaler", "local_step_scaler", "local_step_clipper"})
    params.set(key, c.at(key));
  return params;
}

TEST(OneBitRecorded, ZeroOneAdamFollowsDeepSpeed) {
  const Json all = recorded();
  for (const Json& c : all.at("zero_one_adam").array())
    replay(c, Json::Object{{"type", "ZeroOneAdam"}, {"params", zero_one_params(c)}}, 0);
}

// Which steps reduce gradients and which synchronise, as DeepSpeed's own counters say.
TEST(OneBitRecorded, ZeroOneAdamsIntervalsAreDeepSpeeds) {
  const Json all = recorded();
  std::set<StepForm> seen;
  for (const Json& c : all.at("zero_one_adam").array()) {
    Json document;
    document.set("train_batch_size", 2);
    document.set("optimizer", Json::Object{{"type", "ZeroOneAdam"}, {"params", zero_one_params(c)}});
    const OptimizerConfig config = parse_config(document, 2).optimizer;
    const Json::Array& trace = c.at("trace").array();
    for (size_t k = 1; k < trace.size(); ++k) {
      const StepForm form = optimizer_of(config).form(config, static_cast<int64_t>(k) - 1);
      seen.insert(form);
      const bool frozen = trace[k - 1].at("frozen").boolean();
      EXPECT_EQ(form == StepForm::reduced, trace[k].at("engine_reduced_gradients").boolean()) << k;
      EXPECT_EQ(form != StepForm::reduced && form != StepForm::gradients, frozen) << k;
      const bool agreed = trace[k].at("lrs").number() == 0;
      EXPECT_EQ(form == StepForm::local, frozen && !agreed) << k;
    }
  }
  EXPECT_EQ(seen.size(), 5u);
}

TEST(OneBitRecorded, LambFollowsDeepSpeed) {
  const Json all = recorded();
  for (const Json& c : all.at("onebit_lamb").array()) {
    for (int stage : {0, 1}) {
      Json params = params_of(c);
      params.set("freeze_step", c.at("freeze_step").integer() - 1);
      replay(c, Json::Object{{"type", "OneBitLamb"}, {"params", params}}, stage);
    }
  }
}

}  // namespace
}  // namespace ds::test::onebit_recorded
