// Compares 1-bit optimizers on several ranks with numbers that DeepSpeed 0.19.6 recorded
// (onebit.json).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "core/config/config.h"
#include "core/config/parse_config.h"
#include "engine/engine.h"
#include "optim/optimizer.h"
#include "support/ranks.h"
#include "support/record.h"
#include "support/semantics.h"

namespace ds::test::onebit_recorded {
namespace {

// Returns the recording. Its list "allreduce" is read by signs_test.cpp.
Recording recorded() {
  return {semantics_path("onebit.json"),
          {"allreduce", "onebit_adam", "zero_one_adam", "onebit_lamb"}};
}

// A recorded case. Its gradients are fed to an engine through a loss that is the sum of mse(p,
// target). The gradient of this loss is 2 (p - target) / numel, so the targets determine the
// gradients.
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
  // Returns tensor i's values of one step and worker from `all`.
  std::vector<float> slice(const std::vector<float>& all, size_t i, size_t step, int worker) const {
    auto numel = static_cast<size_t>(numels[i]);
    auto first = all.begin() +
                 static_cast<int64_t>(
                     (step * static_cast<size_t>(workers) + static_cast<size_t>(worker)) * numel);
    return {first, first + numels[i]};
  }

  Graph graph() const {
    Graph g;
    g.bound = 1;
    ValueId loss;
    for (size_t i = 0; i < numels.size(); ++i) {
      std::string n = std::to_string(i);
      TensorType type{DS_DTYPE_F32, {numels[i]}};
      ValueId one =
          g.add("mse", {g.add_param("p" + n, type, {"zeros", 0}), g.add_input("t" + n, type)});
      loss = i == 0 ? one : g.add("add", {loss, one});
    }
    g.add_output("loss", loss);
    return g;
  }
};

// Returns the number of elements whose distance from the record exceeds the tolerance.
// The tolerance applies to the value plus the distance that it has moved so far, because each step
// is rounded relative to itself.
int64_t differing(const std::vector<float>& got, const std::vector<float>& want,
                  const std::vector<double>& moved, const Tolerance& tolerance) {
  EXPECT_EQ(got.size(), want.size());
  int64_t count = 0;
  for (size_t e = 0; e < got.size(); ++e) {
    const auto at = static_cast<double>(want[e]);
    count += !(std::abs(static_cast<double>(got[e]) - at) <= tolerance.of(std::abs(at) + moved[e]));
  }
  return count;
}

// A check of the engine after a step of this form.
using AfterStep = std::function<void(size_t step, StepForm form, Engine& engine)>;

// Repeats DeepSpeed's steps, except for the first one, which is a dry run. Therefore freeze_step is
// one less than in the recording.
void replay(const Record& json, const Tolerance& tolerance, Json optimizer, int stage,
            const AfterStep& after = {}) {
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
    std::vector<std::vector<float>> grads, results, before;
    std::vector<std::vector<double>> moved;
    for (size_t i = 0; i < r.numels.size(); ++i) {
      before.push_back(r.read("param", i));
      engine.store().write_tensor(ParamId(i), "param", before[i]);
      grads.push_back(r.read("grad", i));
      results.push_back(r.read("result", i));
      moved.emplace_back(before[i].size());
    }
    for (size_t s = 1; s < r.steps; ++s) {
      std::vector<std::vector<float>> targets;
      std::vector<InputView> inputs;
      for (size_t i = 0; i < r.numels.size(); ++i) {
        std::vector<float> p = engine.store().read_tensor(ParamId(i), "param");
        std::vector<float> g = r.slice(grads[i], i, s, comm.rank());
        for (size_t e = 0; e < p.size(); ++e)
          g[e] = p[e] - static_cast<float>(r.numels[i]) / 2 * g[e];
        targets.push_back(std::move(g));
      }
      for (const std::vector<float>& t : targets)
        inputs.push_back({t.data(), DS_DTYPE_F32, static_cast<int64_t>(t.size())});
      ASSERT_FALSE(engine.train_batch(inputs).skipped);
      int64_t off = 0;
      for (size_t i = 0; i < r.numels.size(); ++i) {
        const std::vector<float> want = r.slice(results[i], i, s, comm.rank());
        for (size_t e = 0; e < want.size(); ++e)
          moved[i][e] += std::abs(static_cast<double>(want[e]) - static_cast<double>(before[i][e]));
        before[i] = want;
        off +=
            differing(engine.store().read_tensor(ParamId(i), "param"), want, moved[i], tolerance);
      }
      ASSERT_EQ(off, 0) << r.name << " stage " << stage << " step " << s + 1 << " rank "
                        << comm.rank();
      if (after && comm.rank() == 0) {
        const StepForm form =
            optimizer_of(config.optimizer).form(config.optimizer, static_cast<int64_t>(s) - 1);
        after(s, form, engine);
      }
    }
    for (size_t i = 0; i < r.numels.size(); ++i) {
      for (const char* kind : {"exp_avg", "exp_avg_sq"}) {
        const std::vector<double> none(static_cast<size_t>(r.numels[i]));
        EXPECT_EQ(differing(engine.store().read_tensor(ParamId(i), kind),
                            r.slice(r.read(kind, i), i, 0, comm.rank()), none, tolerance),
                  0)
            << r.name << " " << kind << " of " << i;
      }
    }
  });
}

// Returns the optimizer parameters of a case: all its entries except those that describe the case
// itself. freeze_step is one less.
Json params_of(const Record& c) {
  Json params{Json::Object()};
  for (const auto& [name, value] : c.all().object()) {
    if (name == "name" || name == "workers" || name == "shapes" || name == "steps" ||
        name == "trace")
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

// Compares the forms of the steps with DeepSpeed's counters, which show the steps that reduce
// gradients and the steps after the freeze. trace[k] belongs to step k + 1, and trace[0] to
// DeepSpeed's dry run. Returns the trace, whose records have further entries to check.
std::vector<Record> follow_trace(const char* type, const Record& c) {
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
    EXPECT_EQ(form == StepForm::reduced, reduces) << k;
    const bool frozen = trace[k - 1].at("frozen").boolean();
    EXPECT_EQ(form != StepForm::reduced && form != StepForm::gradients, frozen) << k;
  }
  return trace;
}

void expect_recorded(const Recording& all, const Record& c, const char* type,
                     const std::vector<int>& stages, const AfterStep& after = {}) {
  const Json params = params_of(c);
  for (int stage : stages)
    replay(c, all.tolerance(), Json::Object{{"type", type}, {"params", params}}, stage, after);
}

TEST(OneBitRecorded, AdamFollowsDeepSpeed) {
  const Recording all = recorded();
  for (const Record& c : all.list("onebit_adam")) {
    follow_trace("OneBitAdam", c);
    expect_recorded(all, c, "OneBitAdam", {0, 1});
  }
}

// The numbers that an engine with 1-bit LAMB keeps for every parameter: the factor that scales its
// momentum for the exchange, the mean of its ratios, and the last factor of its ratio.
struct Coefficients {
  std::vector<float> scales, means, factors;
};

Coefficients coefficients_of(StateStore& store) {
  const std::vector<OwnState> states = store.own_states().states();
  for (size_t i = 0; i < states.size(); ++i) {
    if (states[i].name != "coefficients") continue;
    std::vector<float> all(static_cast<size_t>(states[i].numel));
    store.own_states().read(i, 0, states[i].numel, all.data());
    const auto third = static_cast<int64_t>(all.size() / 3);
    return {{all.begin(), all.begin() + third},
            {all.begin() + third, all.begin() + 2 * third},
            {all.begin() + 2 * third, all.end()}};
  }
  ADD_FAILURE() << "no coefficients";
  return {};
}

// The trace has the coefficients of the first parameter and the ratios of all parameters. Before
// the freeze, the test recovers a ratio from the change of its mean: mean = beta * mean + (1 -
// beta) * ratio.
TEST(OneBitRecorded, LambFollowsDeepSpeed) {
  const Recording all = recorded();
  for (const Record& c : all.list("onebit_lamb")) {
    SCOPED_TRACE(c.at("name").string());
    const OptimizerConfig config = optimizer_config("OneBitLamb", c);
    const std::vector<Record> trace = follow_trace("OneBitLamb", c);
    const Tolerance given = all.tolerance();
    const double beta = config.coeff_beta, rounding = 0x1p-22 / (1 - config.beta1);
    // The means that libds had before the step.
    std::vector<double> means;
    const auto follow = [&](size_t step, StepForm form, Engine& engine) {
      SCOPED_TRACE(step);
      const Record& want = trace[step];
      const Coefficients got = coefficients_of(engine.store());
      const size_t params = c.at("shapes").array().size();
      means.resize(params);
      ASSERT_EQ(got.means.size(), params);
      const auto near = [&](double value, double wanted, double more) {
        EXPECT_NEAR(value, wanted, given.of(wanted) + more * std::abs(wanted));
      };
      near(got.means[0], want.at("lamb_coeff_freeze").number(), 0);
      // Factors other than 1 begin with the freeze. From then on a gradient is computed from two
      // momenta, which amplifies their rounding by 1 / (1 - beta1).
      const double factor = want.at("last_factor").number();
      if (form == StepForm::reduced) {
        EXPECT_EQ(factor, 1);
      } else {
        near(got.factors[0], factor, rounding);
      }
      EXPECT_EQ(want.has("scaling_coeff"), form != StepForm::reduced);
      if (const Json* scale = want.find("scaling_coeff")) near(got.scales[0], scale->number(), 0);
      const Json::Array& ratios = want.at("lamb_coeff").array();
      ASSERT_EQ(ratios.size(), params);
      for (size_t p = 0; p < params; ++p) {
        const double ratio = ratios[p].number(), mean = got.means[p];
        if (form != StepForm::reduced) {
          near(mean * got.factors[p], ratio, rounding);
        } else if (ratio == 1) {
          EXPECT_EQ(mean, means[p]);
        } else {
          near((mean - beta * means[p]) / (1 - beta), ratio,
               0x1p-22 * (1 + mean / ratio) / (1 - beta));
        }
        means[p] = mean;
      }
    };
    for (int stage : {0, 1}) {
      means.clear();
      expect_recorded(all, c, "OneBitLamb", {stage}, follow);
    }
    // The dry run does not set any of the coefficients.
    EXPECT_EQ(trace[0].at("lamb_coeff_freeze").number(), 0);
    EXPECT_EQ(trace[0].at("last_factor").number(), 1);
    EXPECT_TRUE(trace[0].at("lamb_coeff").array().empty());
  }
}

TEST(OneBitRecorded, ZeroOneAdamFollowsDeepSpeed) {
  const Recording all = recorded();
  for (const Record& c : all.list("zero_one_adam")) {
    for (const Record& step : follow_trace("ZeroOneAdam", c)) static_cast<void>(step.all());
    expect_recorded(all, c, "ZeroOneAdam", {0});
  }
}

// An interval that doubles, and the number of steps counted towards its next doubling.
struct Doubling {
  int64_t interval = 1, counted = 0;

  void count(int64_t needed, int64_t most) {
    if (++counted < needed) return;
    counted = 0;
    interval = std::min(most, 2 * interval);
  }
};

// Compares the steps after which ranks agree, and the doubling intervals between them.
TEST(OneBitRecorded, ZeroOneAdamsIntervalsAreDeepSpeeds) {
  const Recording all = recorded();
  for (const Record& c : all.list("zero_one_adam")) {
    SCOPED_TRACE(c.at("name").string());
    const OptimizerConfig config = optimizer_config("ZeroOneAdam", c);
    const std::vector<Record> trace = follow_trace("ZeroOneAdam", c);
    Doubling variance, local;
    double rates = 0;
    for (size_t k = 0; k < trace.size(); ++k) {
      SCOPED_TRACE(k);
      if (k > 0) {
        const StepForm form = optimizer_of(config).form(config, static_cast<int64_t>(k) - 1);
        // DeepSpeed counts its steps from 1.
        const auto number = static_cast<int64_t>(k) + 1;
        // DeepSpeed tests both intervals with the number of the step, before the step can change
        // the interval.
        if (!trace[k - 1].at("frozen").boolean()) {
          EXPECT_EQ(form == StepForm::reduced, number % variance.interval == 0);
          if (form == StepForm::reduced) variance.count(config.var_update_scaler, INT64_MAX);
        } else {
          EXPECT_EQ(form == StepForm::local, number % local.interval != 0);
          rates = form == StepForm::local ? rates + config.lr : 0;
          local.count(config.local_step_scaler, config.local_step_clipper);
        }
      }
      EXPECT_EQ(trace[k].at("var_interval").integer(), variance.interval);
      EXPECT_EQ(trace[k].at("var_counter").integer(), variance.counted);
      EXPECT_EQ(trace[k].at("local_step_interval").integer(), local.interval);
      EXPECT_EQ(trace[k].at("local_step_counter").integer(), local.counted);
      EXPECT_NEAR(trace[k].at("lrs").number(), rates, 1e-12 * static_cast<double>(k) * config.lr);
    }
  }
}

}  // namespace
}  // namespace ds::test::onebit_recorded
