// Optimizers against what DeepSpeed 0.19.8 and torch 2.15 computed from the same parameters and gradients
// (optimizers.json, whose notes have the formulas), by engines whose host gives them these gradients.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/json.h"
#include "engine/delegate.h"
#include "support/initial.h"
#include "support/ranks.h"
#include "support/record.h"
#include "support/semantics.h"
#include "support/temp_folder.h"

namespace ds::test {
namespace {

struct Layout {
  int stage = 0, world = 1;
  const char* tier = "none";
};

// Of the recorded class: the value of optimizer.type, and names that differ from the configuration's.
struct Counterpart {
  std::string type;
  std::map<std::string, Json> params;  // given beside the recorded ones
  std::map<std::string, std::string> states;
};

const Counterpart* counterpart(const std::string& optimizer) {
  static const std::map<std::string, Counterpart> all{
      {"DeepSpeedCPUAdam", {"Adam", {}, {}}},
      {"FusedAdam", {"Adam", {}, {}}},
      {"AdamW", {"AdamW", {}, {}}},
      {"Adam", {"Adam", {{"adam_w_mode", false}}, {}}},
      {"DeepSpeedCPULion", {"Lion", {}, {}}},
      {"FusedLion", {"Lion", {}, {}}},
      {"DeepSpeedCPUAdagrad", {"Adagrad", {}, {{"exp_avg_sq", "sum"}}}},
      {"Adagrad", {"Adagrad", {}, {}}},
      {"SGD", {"SGD", {}, {}}},
      {"FusedLamb", {"Lamb", {}, {}}},
      {"Muon", {"Muon", {}, {{"momentum_buffer", "exp_avg"}}}},
  };
  auto found = all.find(optimizer);
  return found == all.end() ? nullptr : &found->second;
}

// Cases that mean something else here, with the reason; docs/reference/deepspeed_compat.md has them, too.
const std::map<std::string, std::string>& decided() {
  static const std::map<std::string, std::string> cases{
      {"torch_adamw_amsgrad", "amsgrad is refused"},
      {"gpu_lion_statement", "the sign of 0 is that of DeepSpeedCPULion"},
  };
  return cases;
}

std::vector<int64_t> shape_of(const Json& given) {
  std::vector<int64_t> shape;
  for (const Json& extent : given.array()) shape.push_back(static_cast<int64_t>(extent.number()));
  return shape;
}

Json config_of_case(const Record& item, const std::vector<std::vector<int64_t>>& shapes,
                    const Layout& layout) {
  const Counterpart& ours = *counterpart(item.at("optimizer").string());
  Json params = Json::Object();
  for (const auto& [name, value] : ours.params) params.set(name, value);
  for (const auto& [name, value] : item.at("params").object()) {
    if (name == "lr_by_step" || name == "dtype") continue;  // the latter is said below
    if (name == "compute") continue;  // of Newton-Schulz: f32 here, unless bf16.enabled says otherwise
    params.set(name == "adamw_mode" ? "adam_w_mode" : name, value);
  }
  Json optimizer = Json::Object();
  optimizer.set("type", ours.type);
  if (item.has("aux_adam")) {
    const Record adam = item.inside("aux_adam");
    for (const char* name : {"betas", "eps"}) params.set(name, adam.at(name));
    params.set("adam_lr", adam.at("lr"));
    Json vectors = Json::Object(), names = Json::Array();
    for (size_t p = 0; p < shapes.size(); ++p) {
      if (shapes[p].size() < 2) names.array().emplace_back("p" + std::to_string(p));
    }
    vectors.set("params", names);
    vectors.set("weight_decay", adam.at("weight_decay"));
    optimizer.set("param_groups", Json(Json::Array{vectors}));
  }
  optimizer.set("params", params);
  Json offload = Json::Object();
  offload.set("device", std::string(layout.tier));
  offload.set("nvme_path", std::string(DS_BINARY_DIR) + "/scratch");
  Json zero = Json::Object();
  zero.set("stage", layout.stage);
  if (std::string(layout.tier) != "none") zero.set("offload_optimizer", offload);
  Json config = Json::Object();
  config.set("train_micro_batch_size_per_gpu", 1);
  config.set("gradient_clipping", 0);
  config.set("optimizer", optimizer);
  config.set("zero_optimization", zero);
  if (const Json* type = item.at("params").find("dtype"); type && type->string() == "bf16") {
    // The recorded classes update the bf16 parameters themselves.
    Json bf16 = Json::Object();
    bf16.set("enabled", true);
    bf16.set("bf16_master_weights_and_grads", true);
    config.set("bf16", bf16);
  }
  return config;
}

// Parameters and one gradient a step that cases have in common.
struct Data {
  std::vector<std::vector<int64_t>> shapes;
  int64_t steps = 0;
  std::vector<int64_t> zeros;  // parameters that are 0 at first
};

// How far DeepSpeed's kernels of the CPU are from the formulas: they take betas as f32, and so 1 - beta,
// relatively much where beta is near 1.
double shift_of(double beta) {
  const auto narrow = static_cast<float>(beta);
  return std::abs(static_cast<double>(1.0f - narrow) / (1 - beta) - 1);
}

struct Betas {
  double first = 0, second = 0;  // 0: the optimizer has none
  bool narrow = false, corrected = true;

  explicit Betas(const Record& item) {
    static const std::map<std::string, std::pair<double, double>> of_class{
        {"DeepSpeedCPUAdam", {0.9, 0.999}}, {"FusedAdam", {0.9, 0.999}}, {"DeepSpeedCPULion", {0.9, 0.999}}};
    auto found = of_class.find(item.at("optimizer").string());
    narrow = found != of_class.end();
    if (!narrow) return;
    first = found->second.first;
    second = found->second.second;
    const Json& params = item.at("params");
    if (const Json* given = params.find("betas")) {
      first = given->array().at(0).number();
      second = given->array().at(1).number();
    }
    if (const Json* given = params.find("bias_correction")) corrected = given->boolean();
  }
  double shift() const { return narrow ? shift_of(first) + shift_of(second) : 0; }
  // Of an update in units of the rate: without corrections, both of which have the factor, too.
  double of_updates(int64_t steps) const {
    if (!narrow || corrected) return 0;
    double squares = 0;  // of the greatest ratio of a mean to the root of a mean of squares, by Cauchy
    for (int64_t t = 0; t < steps; ++t) {
      squares +=
          (1 - first) * (1 - first) / (1 - second) * std::pow(first * first / second, static_cast<double>(t));
    }
    return static_cast<double>(steps) * shift() * std::sqrt(squares);
  }
};

class Recorded {
 public:
  Recorded() : tensors_(semantics_path("optimizers.safetensors")) {
    for (const Record& one : recording_.list("data")) {
      Data data;
      data.steps = one.at("steps").integer();
      for (const Json& shape : one.at("shapes").array()) data.shapes.push_back(shape_of(shape));
      if (const Json* zeros = one.find("zero_param")) data.zeros = shape_of(*zeros);
      one.told({"grad_scale", "zeros"});
      data_[one.at("name").string()] = data;
    }
  }

  std::vector<Record> cases() const { return recording_.list("cases"); }
  const Data& data_of(const Record& item) const { return data_.at(item.at("data").string()); }

  void compare(const Record& item, const Layout& layout) {
    const std::string data = item.at("data").string(), name = item.at("name").string();
    const Data& common = data_.at(data);
    const std::vector<std::vector<int64_t>>& shapes = common.shapes;
    std::vector<std::vector<float>> initial, grads;
    for (size_t p = 0; p < shapes.size(); ++p) {
      initial.push_back(tensors_.read("data." + data + ".param." + std::to_string(p)));
      grads.push_back(tensors_.read("data." + data + ".grad." + std::to_string(p)));
      ASSERT_EQ(grads.back().size(), initial.back().size() * static_cast<size_t>(common.steps));
      const bool zero = std::count(common.zeros.begin(), common.zeros.end(), static_cast<int64_t>(p)) > 0;
      EXPECT_EQ(std::all_of(initial[p].begin(), initial[p].end(), [](float x) { return x == 0; }), zero);
      if (!item.at("params").find("dtype")) continue;
      for (std::vector<float>* values : {&initial.back(), &grads.back()}) {
        for (float& x : *values) x = static_cast<float>(bf16(x));
      }
    }
    run_ranks(layout.world, [&](Communicator& comm) {
      DelegateEngine engine(parse_config(config_of_case(item, shapes, layout), layout.world), comm,
                            with_values(initial));
      for (size_t p = 0; p < shapes.size(); ++p) engine.add_param("p" + std::to_string(p), shapes[p]);
      engine.start();
      const Json* rates = item.at("params").find("lr_by_step");
      for (int64_t s = 0; s < common.steps; ++s) {
        if (rates) engine.set("lr", rates->array().at(static_cast<size_t>(s)).number());
        for (size_t p = 0; p < shapes.size(); ++p) {
          auto numel = static_cast<int64_t>(initial[p].size());
          engine.grad_ready(ParamId(p), {grads[p].data() + s * numel, DS_DTYPE_F32, numel});
        }
        engine.end_micro_step();
        engine.step();
        for (size_t p = 0; p < shapes.size(); ++p)
          check(item, engine.store(), p, "master", fmt::format("{}.param.{}@{}", name, p, s + 1), s + 1);
      }
      for (const Json& state : item.at("states").array()) {
        const std::map<std::string, std::string>& names = counterpart(item.at("optimizer").string())->states;
        auto other = names.find(state.string());
        for (size_t p = 0; p < shapes.size(); ++p) {
          check(item, engine.store(), p, other == names.end() ? state.string() : other->second,
                fmt::format("{}.state.{}.{}@{}", name, state.string(), p, common.steps), common.steps);
        }
      }
    });
  }

  // Every recorded tensor of a case that is compared was asked for, and at least one of each parameter.
  void expect_all_compared(const Record& item) const {
    const std::string name = item.at("name").string();
    for (const auto& tensor : tensors_.names()) {
      if (!tensor.starts_with(name + ".")) continue;
      EXPECT_TRUE(compared_.contains(tensor)) << tensor << " is compared with nothing";
    }
  }

 private:
  // By the type, the class and how DeepSpeed made Muon's products: exactly, or in 16 bits.
  Tolerance allowed(const Record& item, const std::string& kind, int64_t steps) const {
    const Json& all = recording_.document().at("tolerance");
    const std::string optimizer = item.at("optimizer").string();
    const Json& params = item.at("params");
    const Json* type = params.find("dtype");
    Tolerance out = recording_.tolerance(type                       ? type->string()
                                         : optimizer == "FusedLamb" ? optimizer
                                                                    : "fp32");
    if (optimizer == "Muon" && kind == "master") {
      const std::string& made_in = item.at("newton_schulz_dtype").string();
      const bool f32 = made_in == "float32";
      EXPECT_TRUE(f32 || made_in == "float16" || made_in == "bfloat16") << made_in;
      EXPECT_EQ(f32, params.find("compute") && params.at("compute").string() == "fp32");
      double factor = 0;
      const std::string& text = all.at(f32 ? "muon _fp32" : "muon others").string();
      EXPECT_EQ(std::sscanf(text.c_str(), "atol %lf*lr*steps", &factor), 1) << text;
      out.atol = factor * params.at("lr").number() * static_cast<double>(steps);
      return out;
    }
    const Betas betas(item);
    if (kind == "exp_avg" && betas.narrow) out.rtol += 2 * shift_of(betas.first);
    if (kind == "exp_avg_sq" && betas.narrow) out.rtol += 2 * shift_of(betas.second);
    if (kind == "master") {
      const Json* rate = params.find("lr");
      out.atol += betas.of_updates(steps) * (rate ? rate->number() : 1e-3);
    }
    return out;
  }

  // Parameters are recorded after some steps only.
  void check(const Record& item, StateStore& store, size_t param, const std::string& kind,
             const std::string& recorded, int64_t steps) {
    std::vector<float> got = store.read_tensor(ParamId(param), kind);
    if (!tensors_.find(recorded)) return;
    {
      std::lock_guard lock(mutex_);
      compared_.insert(recorded);
    }
    const Tolerance tolerance = allowed(item, kind, steps);
    std::vector<float> want = tensors_.read(recorded);
    ASSERT_EQ(got.size(), want.size()) << recorded;
    // Of states in bf16 a few elements are rounded the other way, which the steps behind it carry on: where
    // the two results lie on both sides of the middle between two neighbours. In step t about 1/t of a state
    // is new, which the betas of the kernels shift; a neighbour is 2^-8 away.
    const Json* states = item.at("params").find("fp32_optimizer_states");
    const bool lean = states && !states->boolean();
    double share = 0;
    for (int64_t t = 1; lean && t <= steps; ++t)
      share += 1e-3 + 256 * Betas(item).shift() / static_cast<double>(t);
    size_t apart = 0;
    for (size_t e = 0; e < want.size(); ++e) {
      const double most = tolerance.of(static_cast<double>(want[e]));
      const bool other_way = lean && std::abs(got[e] - want[e]) > most;
      apart += other_way ? 1 : 0;
      ASSERT_NEAR(got[e], want[e], other_way ? 2 * most : most) << recorded << "[" << e << "]";
    }
    EXPECT_LE(static_cast<double>(apart), lean ? 1 + share * static_cast<double>(want.size()) : 0)
        << recorded;
  }

  Recording recording_{semantics_path("optimizers.json"), {"data", "cases"}};
  RecordedTensors tensors_;
  std::map<std::string, Data> data_;
  std::mutex mutex_;
  std::set<std::string> compared_;
};

TEST(OptimizerSemantics, RecordedTrajectories) {
  Recorded recorded;
  for (const Record& item : recorded.cases()) {
    const std::string name = item.at("name").string();
    SCOPED_TRACE(name);
    // The ratio of each step of LAMB is on the way to the parameters that are compared.
    item.told({"lamb_coeff"});
    const Json* type = item.at("params").find("dtype");
    const bool half = type && type->string() == "fp16";  // parameters in f16 are not part of libds yet
    EXPECT_TRUE(!type || half || type->string() == "bf16") << type->dump();
    if (decided().contains(name) || half) {
      static_cast<void>(item.all());
      continue;
    }
    ASSERT_TRUE(counterpart(item.at("optimizer").string())) << item.dump();
    for (const Layout& layout : {Layout{}, Layout{1, 2, "cpu"}, Layout{3, 3, "nvme"}}) {
      SCOPED_TRACE(fmt::format("stage {} world {} {}", layout.stage, layout.world, layout.tier));
      recorded.compare(item, layout);
    }
    recorded.expect_all_compared(item);
  }
}

TEST(OptimizerSemantics, WhatIsDecidedOtherwise) {
  Recorded recorded;
  for (const Record& item : recorded.cases()) {
    static_cast<void>(item.all());
    if (item.at("name").string() != "torch_adamw_amsgrad") continue;
    std::string message;
    try {
      parse_config(config_of_case(item, recorded.data_of(item).shapes, {}), 1);
    } catch (const Error& error) {
      message = error.what();
    }
    EXPECT_EQ(message,
              "optimizer.params.amsgrad: true is unsupported by this version; supported: false; no optimizer "
              "here keeps "
              "the largest second moment");
  }
}

}  // namespace
}  // namespace ds::test
