// Compares optimizers with the results of DeepSpeed 0.19.8 and torch 2.15 for the same parameters
// and gradients (optimizers.json, whose notes give the formulas). The host hands these gradients to
// the engines under test.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <map>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/half.h"
#include "core/base/json.h"
#include "core/config/parse_config.h"
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

// The libds optimizer for a recorded class: its optimizer.type, and the states whose names differ.
struct Counterpart {
  std::string type;
  // Parameters that are set in addition to the recorded ones.
  std::map<std::string, Json> params;
  std::map<std::string, std::string> states;
};

// Returns the libds optimizer for a recorded class; throws if there is none.
const Counterpart& counterpart(const std::string& optimizer) {
  static const std::map<std::string, Counterpart> all{
      {"DeepSpeedCPUAdam", {"Adam", {}, {}}},
      {"FusedAdam", {"Adam", {}, {}}},
      {"AdamW", {"AdamW", {{"torch_adam", true}}, {}}},
      {"Adam", {"Adam", {{"torch_adam", true}, {"adam_w_mode", false}}, {}}},
      {"DeepSpeedCPULion", {"Lion", {}, {}}},
      {"FusedLion", {"Lion", {}, {}}},
      {"DeepSpeedCPUAdagrad", {"Adagrad", {}, {{"exp_avg_sq", "sum"}}}},
      {"Adagrad", {"Adagrad", {}, {}}},
      {"SGD", {"SGD", {}, {}}},
      {"FusedLamb", {"Lamb", {}, {}}},
      {"Muon", {"Muon", {}, {{"momentum_buffer", "exp_avg"}}}},
  };
  auto found = all.find(optimizer);
  if (found == all.end()) throw std::runtime_error("no optimizer of libds is " + optimizer);
  return found->second;
}

// Returns whether libds refuses a case; docs/reference/deepspeed_compat.md gives the reason.
bool refused(const Record& item) {
  const Json* amsgrad = item.at("params").find("amsgrad");
  return amsgrad && amsgrad->boolean();
}

std::vector<int64_t> shape_of(const Json& given) {
  std::vector<int64_t> shape;
  for (const Json& extent : given.array()) shape.push_back(static_cast<int64_t>(extent.number()));
  return shape;
}

Json config_of_case(const Record& item, const std::vector<std::vector<int64_t>>& shapes,
                    const Layout& layout) {
  const Counterpart& ours = counterpart(item.at("optimizer").string());
  Json params = Json::Object();
  for (const auto& [name, value] : ours.params) params.set(name, value);
  for (const auto& [name, value] : item.at("params").object()) {
    // A bf16 `dtype` becomes the section "bf16" below.
    if (name == "lr_by_step" || name == "dtype") continue;
    // libds has no parameter for the type in which Newton-Schulz computes.
    if (name == "compute") continue;
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

// The parameters that several cases share, and a gradient of each parameter for each step.
struct Data {
  std::vector<std::vector<int64_t>> shapes;
  int64_t steps = 0;
  // The parameters that are initially 0.
  std::vector<int64_t> zeros;
  std::vector<std::vector<float>> initial, grads;
};

std::vector<float> rounded(DType type, const std::vector<float>& values) {
  const auto count = static_cast<int64_t>(values.size());
  std::vector<std::byte> bytes(values.size() * static_cast<size_t>(size_of(type)));
  narrow(type, values.data(), count, bytes.data());
  std::vector<float> out(values.size());
  widen(type, bytes.data(), count, out.data());
  return out;
}

// Checks that the gradients are random: each is `grad_scale` times a normal number, except for a
// share `zeros` of them that is 0. The count of zeros and the mean square must be within six
// standard deviations.
void expect_drawn(const Record& data, const std::vector<std::vector<float>>& grads) {
  const double scale = data.at("grad_scale").number(), share = data.at("zeros").number();
  double all = 0, zeros = 0, squares = 0;
  for (const std::vector<float>& grad : grads) {
    all += static_cast<double>(grad.size());
    for (float x : grad) {
      zeros += x == 0 ? 1 : 0;
      squares += static_cast<double>(x) * static_cast<double>(x);
    }
  }
  EXPECT_NEAR(zeros / all, share, share == 0 ? 0 : 6 * std::sqrt(share * (1 - share) / all));
  EXPECT_NEAR(squares / (all - zeros), scale * scale,
              6 * scale * scale * std::sqrt(2 / (all - zeros)));
}

// Returns the relative error of 1 - beta in those of DeepSpeed's kernels that convert betas to f32.
// It is large if beta is near 1.
double shift_of(double beta) {
  const auto narrow = static_cast<float>(beta);
  return std::abs(static_cast<double>(1.0f - narrow) / (1 - beta) - 1);
}

struct Betas {
  // Both betas are 0 if the class does not convert them to f32.
  double first = 0, second = 0;
  bool narrow = false, corrected = true;

  explicit Betas(const Record& item) {
    static const std::set<std::string> narrow_classes{"DeepSpeedCPUAdam", "FusedAdam",
                                                      "DeepSpeedCPULion", "FusedLion", "FusedLamb"};
    narrow = narrow_classes.contains(item.at("optimizer").string());
    if (!narrow) return;
    first = 0.9;
    second = 0.999;
    const Json& params = item.at("params");
    if (const Json* given = params.find("betas")) {
      first = given->array().at(0).number();
      second = given->array().at(1).number();
    }
    if (const Json* given = params.find("bias_correction")) corrected = given->boolean();
  }
  double shift() const { return narrow ? shift_of(first) + shift_of(second) : 0; }
  // Returns the relative error of an update. With bias correction the errors of 1 - beta cancel,
  // but the corrections are computed from powers of betas in f32, which are close to 1 at first.
  double of_updates() const {
    if (!narrow) return 0;
    constexpr double kRounding = 0x1p-24;
    return corrected ? kRounding / (1 - first) + kRounding / (1 - second) : shift();
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
      const std::string name = one.at("name").string();
      for (size_t p = 0; p < data.shapes.size(); ++p) {
        data.initial.push_back(tensors_.read(fmt::format("data.{}.param.{}", name, p)));
        data.grads.push_back(tensors_.read(fmt::format("data.{}.grad.{}", name, p)));
        require(data.grads[p].size() == data.initial[p].size() * static_cast<size_t>(data.steps),
                "{} gradients of parameter {} are recorded, and {} steps of {} elements",
                data.grads[p].size(), p, data.steps, data.initial[p].size());
        const bool zero =
            std::count(data.zeros.begin(), data.zeros.end(), static_cast<int64_t>(p)) > 0;
        EXPECT_EQ(std::all_of(data.initial[p].begin(), data.initial[p].end(),
                              [](float x) { return x == 0; }),
                  zero);
      }
      expect_drawn(one, data.grads);
      data_[name] = data;
    }
  }

  std::vector<Record> cases() const { return recording_.list("cases"); }
  const Data& data_of(const Record& item) const { return data_.at(item.at("data").string()); }

  void compare(const Record& item, const Layout& layout) {
    const std::string name = item.at("name").string();
    Data data = data_of(item);
    if (const DType type = type_of(item); type != DS_DTYPE_F32) {
      for (std::vector<std::vector<float>>* all : {&data.initial, &data.grads}) {
        for (std::vector<float>& values : *all) values = rounded(type, values);
      }
    }
    const Config config = parse_config(config_of_case(item, data.shapes, layout), layout.world);
    run_ranks(layout.world, [&](Communicator& comm) {
      DelegateEngine engine(config, comm, with_values(data.initial));
      for (size_t p = 0; p < data.shapes.size(); ++p)
        engine.add_param("p" + std::to_string(p), data.shapes[p]);
      engine.start();
      std::vector<Trajectory> params;
      for (size_t p = 0; p < data.shapes.size(); ++p)
        params.push_back({data.initial[p], data.shapes[p]});
      const Json* rates = item.at("params").find("lr_by_step");
      for (int64_t s = 0; s < data.steps; ++s) {
        if (rates) engine.set("lr", rates->array().at(static_cast<size_t>(s)).number());
        const double rate =
            rates ? rates->array()[static_cast<size_t>(s)].number() : config.optimizer.lr;
        for (size_t p = 0; p < data.shapes.size(); ++p) {
          auto numel = static_cast<int64_t>(data.initial[p].size());
          engine.grad_ready(ParamId(p), {data.grads[p].data() + s * numel, DS_DTYPE_F32, numel});
        }
        engine.end_micro_step();
        engine.step();
        for (size_t p = 0; p < data.shapes.size(); ++p) {
          const std::vector<float> now = engine.store().read_tensor(ParamId(p), "master");
          if (item.at("optimizer").string() == "FusedLamb")
            check_ratio(item, config.optimizer, engine.store(), p, s, params[p].now, now);
          params[p].move(now, signs_unsure(item, data, p, s), rate);
          check(item, now, "master", fmt::format("{}.param.{}@{}", name, p, s + 1), s + 1,
                params[p]);
        }
      }
      for (const Json& state : item.at("states").array()) {
        const std::map<std::string, std::string>& names =
            counterpart(item.at("optimizer").string()).states;
        auto other = names.find(state.string());
        for (size_t p = 0; p < data.shapes.size(); ++p) {
          const std::string kind = other == names.end() ? state.string() : other->second;
          check(item, engine.store().read_tensor(ParamId(p), kind), kind,
                fmt::format("{}.state.{}.{}@{}", name, state.string(), p, data.steps), data.steps,
                params[p]);
        }
      }
    });
  }

  // Checks that every recorded tensor of a compared case was compared.
  void expect_all_compared(const Record& item) const {
    const std::string name = item.at("name").string();
    for (const auto& tensor : tensors_.names()) {
      if (!tensor.starts_with(name + ".")) continue;
      EXPECT_TRUE(compared_.contains(tensor)) << tensor << " is compared with nothing";
    }
  }

 private:
  // The path of a parameter: its current elements, how far each has moved, and the largest part of
  // that distance that depends on signs that rounding decides.
  struct Trajectory {
    std::vector<float> now;
    std::vector<int64_t> shape;
    std::vector<double> moved = std::vector<double>(now.size()),
                        unsure = std::vector<double>(now.size());

    void move(const std::vector<float>& to, const std::vector<char>& signs, double rate) {
      for (size_t e = 0; e < now.size(); ++e) {
        moved[e] += std::abs(static_cast<double>(to[e]) - static_cast<double>(now[e]));
        if (!signs.empty() && signs[e]) unsure[e] += 2 * rate;
      }
      now = to;
    }
  };

  // Returns marks of the elements whose update by Lion, the sign of b1 m + (1 - b1) g, is unsure:
  // the kernels' betas or rounding may flip the sign, or it is 0, which FusedLion, unlike
  // DeepSpeedCPULion and libds, treats as negative.
  static std::vector<char> signs_unsure(const Record& item, const Data& data, size_t p,
                                        int64_t step) {
    const std::string& optimizer = item.at("optimizer").string();
    if (optimizer != "DeepSpeedCPULion" && optimizer != "FusedLion") return {};
    const Betas betas(item);
    const size_t numel = data.initial[p].size();
    std::vector<char> out(numel);
    for (size_t e = 0; e < numel; ++e) {
      double m = 0;
      for (int64_t s = 0;; ++s) {
        const double g = data.grads[p][static_cast<size_t>(s) * numel + e];
        if (s == step) {
          const double kept = betas.first * m, fresh = (1 - betas.first) * g;
          const double unsure = (betas.shift() + 0x1p-20) * (std::abs(kept) + std::abs(fresh));
          const double c = kept + fresh;
          out[e] = c == 0 ? optimizer == "FusedLion" : std::abs(c) <= unsure;
          break;
        }
        m = betas.second * m + (1 - betas.second) * g;
      }
    }
    return out;
  }

  // Checks LAMB's ratio, which a least-squares fit recovers from the step: the step divided by the
  // rate and by the update before the ratio.
  void check_ratio(const Record& item, const OptimizerConfig& o, StateStore& store, size_t p,
                   int64_t step, const std::vector<float>& before,
                   const std::vector<float>& after) const {
    const Json::Array& all = item.at("lamb_coeff").array();
    const double want = all.at(static_cast<size_t>(step)).array().at(p).number();
    const std::vector<float> m = store.read_tensor(ParamId(p), "exp_avg"),
                             v = store.read_tensor(ParamId(p), "exp_avg_sq");
    const auto t = static_cast<double>(step + 1);
    const double rate =
        o.lr *
        (o.bias_correction ? std::sqrt(1 - std::pow(o.beta2, t)) / (1 - std::pow(o.beta1, t)) : 1);
    double product = 0, square = 0, of_params = 0;
    for (size_t e = 0; e < m.size(); ++e) {
      const double x = before[e], second = v[e];
      const double root = o.eps_inside_sqrt ? std::sqrt(second + o.eps) : std::sqrt(second) + o.eps;
      const double u = m[e] / root + o.weight_decay * x;
      product += u * (x - static_cast<double>(after[e]));
      square += u * u;
      of_params += x * x;
    }
    const double got = square == 0 ? 1 : product / (rate * square);
    const Tolerance given = recording_.tolerance("FusedLamb");
    const Betas betas(item);
    // The error from rounding the parameters and the terms of the update, and from betas in f32.
    const double rounding = square == 0 ? 0 : 0x1p-22 * std::sqrt(of_params / square) / rate;
    EXPECT_NEAR(got, want, given.of(want) + rounding + betas.of_updates() * want)
        << item.at("name").string() << " tensor " << p << " step " << step;
  }

  // Returns the tolerance for the element type, the class and, for Muon, the type in which
  // DeepSpeed multiplied: f32 or 16 bits.
  Tolerance allowed(const Record& item, const std::string& kind, int64_t steps,
                    const std::vector<int64_t>& shape) const {
    const Json& all = recording_.document().at("tolerance");
    const std::string optimizer = item.at("optimizer").string();
    const Json& params = item.at("params");
    const Json* type = params.find("dtype");
    Tolerance out = recording_.tolerance(type                       ? type->string()
                                         : optimizer == "FusedLamb" ? optimizer
                                                                    : "fp32");
    if (optimizer == "Muon" && kind == "master" && shape.size() > 1) {
      const std::string& made_in = item.at("newton_schulz_dtype").string();
      const bool f32 = made_in == "float32";
      EXPECT_TRUE(f32 || made_in == "float16" || made_in == "bfloat16") << made_in;
      // DeepSpeed multiplies in f32 if asked to, or if it believes that the machine has no narrower
      // products.
      if (const Json* compute = params.find("compute")) {
        EXPECT_TRUE(f32);
        EXPECT_EQ(compute->string(), "fp32");
      }
      double factor = 0;
      const std::string& text = all.at(f32 ? "muon _fp32" : "muon others").string();
      EXPECT_EQ(std::sscanf(text.c_str(), "atol %lf*lr*steps", &factor), 1) << text;
      // The steps of a matrix with more rows than columns are longer.
      const double longer =
          static_cast<double>(shape[shape.size() - 2]) / static_cast<double>(shape.back());
      const Json* rate = params.find("lr");
      out.atol = factor * (rate ? rate->number() : 0.02) * static_cast<double>(steps) *
                 std::sqrt(std::max(1.0, longer));
      return out;
    }
    const Betas betas(item);
    const bool lion = optimizer == "DeepSpeedCPULion" || optimizer == "FusedLion";
    if (kind == "exp_avg" && betas.narrow)
      out.rtol += 2 * shift_of(lion ? betas.second : betas.first);
    if (kind == "exp_avg_sq" && betas.narrow) out.rtol += 2 * shift_of(betas.second);
    return out;
  }

  // Returns the allowed error of an element at `want` on top of the recording's tolerance: a share
  // of its path.
  static double of_way(const Record& item, const Trajectory& way, size_t e, double want,
                       int64_t steps) {
    // Each term of an update is rounded a few times.
    double out = way.unsure[e] + (0x1p-20 + Betas(item).of_updates()) * way.moved[e];
    // DeepSpeed rounds the parameter to f16 in every step; the master of libds stays f32.
    if (type_of(item) == DS_DTYPE_F16)
      out += static_cast<double>(steps) * 0x1p-11 * (std::abs(want) + way.moved[e]);
    return out;
  }

  // Compares a tensor with its recorded values, if there are any: parameters were recorded only
  // after some steps.
  void check(const Record& item, const std::vector<float>& got, const std::string& kind,
             const std::string& recorded, int64_t steps, const Trajectory& way) {
    if (!tensors_.find(recorded)) return;
    {
      std::lock_guard lock(mutex_);
      compared_.insert(recorded);
    }
    const Tolerance tolerance = allowed(item, kind, steps, way.shape);
    std::vector<float> want = tensors_.read(recorded);
    ASSERT_EQ(got.size(), want.size()) << recorded;
    // If decay is added to the gradient, errors of the parameter propagate to the states.
    const bool master = kind == "master", coupled = !master && type_of(item) == DS_DTYPE_F16;
    // In bf16 states, a few elements round to the other neighbour, because the two results lie on
    // either side of the midpoint, and later steps propagate this. In step t about 1/t of a state
    // is new, which the kernels' betas shift; neighbours are 2^-8 apart.
    const Json* states = item.at("params").find("fp32_optimizer_states");
    const bool lean = states && !states->boolean();
    double share = 0;
    for (int64_t t = 1; lean && t <= steps; ++t)
      share += 1e-3 + 256 * Betas(item).shift() / static_cast<double>(t);
    size_t apart = 0;
    for (size_t e = 0; e < want.size(); ++e) {
      const auto at = static_cast<double>(want[e]);
      const double most =
          tolerance.of(at) + (master    ? of_way(item, way, e, at, steps)
                              : coupled ? decay_of(item) * of_way(item, way, e, way.now[e], steps)
                                        : 0);
      const bool other_way = lean && std::abs(got[e] - want[e]) > most;
      apart += other_way ? 1 : 0;
      ASSERT_NEAR(got[e], want[e], other_way ? 2 * most : most) << recorded << "[" << e << "]";
    }
    EXPECT_LE(static_cast<double>(apart), lean ? 1 + share * static_cast<double>(want.size()) : 0)
        << recorded;
  }

  static DType type_of(const Record& item) {
    const Json* type = item.at("params").find("dtype");
    if (!type) return DS_DTYPE_F32;
    EXPECT_TRUE(type->string() == "bf16" || type->string() == "fp16") << type->dump();
    return type->string() == "bf16" ? DS_DTYPE_BF16 : DS_DTYPE_F16;
  }
  static double decay_of(const Record& item) {
    const Json* decay = item.at("params").find("weight_decay");
    return decay ? decay->number() : 0;
  }

  Recording recording_{semantics_path("optimizers.json"), {"data", "cases"}};
  RecordedTensors tensors_;
  std::map<std::string, Data> data_;
  std::mutex mutex_;
  std::set<std::string> compared_;
};

TEST(OptimizerSemantics, FollowRecordedTrajectories) {
  Recorded recorded;
  for (const Record& item : recorded.cases()) {
    const std::string name = item.at("name").string();
    SCOPED_TRACE(name);
    if (refused(item)) {
      static_cast<void>(item.all());
      continue;
    }
    for (const Layout& layout : {Layout{}, Layout{1, 2, "cpu"}, Layout{3, 3, "nvme"}}) {
      SCOPED_TRACE(fmt::format("stage {} world {} {}", layout.stage, layout.world, layout.tier));
      recorded.compare(item, layout);
    }
    recorded.expect_all_compared(item);
  }
}

TEST(OptimizerSemantics, UnsupportedCasesAreRefusedWithTheReason) {
  Recorded recorded;
  for (const Record& item : recorded.cases()) {
    static_cast<void>(item.all());
    if (!refused(item)) continue;
    std::string message;
    try {
      parse_config(config_of_case(item, recorded.data_of(item).shapes, {}), 1);
    } catch (const Error& error) {
      message = error.what();
    }
    const std::string reason =
        "optimizer.params.amsgrad: true is unsupported by this version; supported: false; no "
        "optimizer here keeps the largest second moment";
    // The message continues with the anchor in the reference.
    EXPECT_EQ(message.substr(0, reason.size()), reason);
  }
}

}  // namespace
}  // namespace ds::test
