// Compares the reference models with their recorded numbers, and checks that mistakes in a model
// are detected.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "diagnostics/verify.h"
#include "io/file.h"
#include "support/errors.h"
#include "support/ranks.h"
#include "support/same_bits.h"
#include "support/temp_folder.h"

namespace ds::test {
namespace {

std::string folder_of(const std::string& family) {
  return std::string(DS_SOURCE_DIR) + "/tests/data/models/" + family;
}

bool golden_has_bf16(const std::string& family) {
  return Golden(folder_of(family)).run("bf16") != nullptr;
}

struct Case {
  const char* family;
  int world;
  int stage;
  Tier tier;
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << c.family << " ranks " << c.world << " stage " << c.stage << " " << tier_name(c.tier);
}

class Models : public testing::TestWithParam<Case> {};

TEST_P(Models, AgreeWithTheRecordedNumbers) {
  const Case& c = GetParam();
  VerifyRequest options;
  options.stage = c.stage;
  options.tier = c.tier;
  options.nvme_path = scratch_folder();
  options.threads = 1;
  run_ranks(c.world, [&](Communicator& comm) {
    VerifyReport report = verify_folder(folder_of(c.family), options, comm);
    if (comm.rank() == 0) fmt::print("{}", report.text());
    EXPECT_EQ(report.failed(), 0) << report.text();
    bool causal = std::string(c.family) != "bert", half = golden_has_bf16(c.family);
    // There are two findings each for grad, final_params and each of five runs, and one each for
    // logits, loss and greedy.
    EXPECT_EQ(report.findings.size(), (causal ? 17u : 16u) - (half ? 0u : 4u));
  });
}

std::vector<Case> cases() {
  std::vector<Case> out;
  for (const char* family : {"gpt2", "llama", "mixtral", "bert", "qwen2", "opt"}) {
    out.push_back({family, 1, 0, Tier::device});
    out.push_back({family, 2, 0, Tier::device});
    out.push_back({family, 2, 3, Tier::device});
  }
  for (const char* family : {"mistral", "qwen3", "phi3", "gemma2", "gpt_neox"}) {
    out.push_back({family, 1, 0, Tier::device});
    out.push_back({family, 2, 3, Tier::device});
  }
  // Each folder covers cases that the families above lack:
  // - mixtral_left: left padding with the router's loss, sliding windows that ignore layer_types,
  //   yarn bounds that are not whole pairs;
  // - opt_left: left padding, norms without weights;
  // - phi3_odd: holes in the mask, an odd number of rotated columns;
  // - ministral: sliding windows that layer_types selects;
  // - phi3_longrope and llama_dynamic: texts that grow beyond the length at which rotations change.
  // Some folders have other activation functions, too.
  for (const char* folder :
       {"mixtral_left", "opt_left", "phi3_odd", "ministral", "phi3_longrope", "llama_dynamic"}) {
    out.push_back({folder, 1, 0, Tier::device});
    out.push_back({folder, 2, 3, Tier::device});
  }
  out.push_back({"llama", 2, 3, Tier::nvme});
  out.push_back({"bert", 2, 2, Tier::host});
  return out;
}

INSTANTIATE_TEST_SUITE_P(All, Models, testing::ValuesIn(cases()));

// Model folders that tests/interop/models.py drew at random. They have unused keys, other tensor
// names and masked tokens.
class RandomFolders : public testing::TestWithParam<const char*> {};

TEST_P(RandomFolders, AgreeWithTheRecordedNumbers) {
  VerifyRequest options;
  options.threads = 1;
  run_ranks(1, [&](Communicator& comm) {
    VerifyReport report = verify_folder(folder_of(GetParam()), options, comm);
    EXPECT_EQ(report.failed() + report.refused(), 0) << report.text();
    EXPECT_GE(report.findings.size(), 12u);
  });
}

INSTANTIATE_TEST_SUITE_P(All, RandomFolders,
                         testing::Values("random_bert_gamma", "random_gpt2_bare",
                                         "random_llama_left", "random_phi3_layer_types"));

// A tolerance of more than 1 % of the recorded number would not distinguish a wrong program from a
// correct one (docs/reference/verify.md).
TEST(Golden, NoRecordedToleranceIsWiderThanOnePercent) {
  constexpr double kWidest = 0.01;
  int folders = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder_of(""))) {
    std::string folder = entry.path();
    if (!std::filesystem::exists(folder + "/golden.json")) continue;
    Golden golden(folder);
    ++folders;
    double logit = 0, gradient = 0;
    for (float x : golden.logits()) logit = std::max<double>(logit, std::abs(x));
    for (const std::string& name : golden.grad_names) {
      for (float x : golden.grad(name)) gradient = std::max<double>(gradient, std::abs(x));
    }
    EXPECT_LE(golden.logits_abs, kWidest * logit) << folder;
    EXPECT_LE(golden.loss_abs, kWidest * golden.loss) << folder;
    EXPECT_LE(golden.grad_abs, kWidest * gradient) << folder;
    EXPECT_LE(golden.grad_rel, kWidest) << folder;
    for (const GoldenRun& run : golden.runs) {
      if (run.bf16) continue;
      EXPECT_LE(run.loss_abs, kWidest * run.loss[0]) << folder << " " << run.name;
      EXPECT_LE(run.grad_norm_rel, kWidest) << folder << " " << run.name;
    }
  }
  EXPECT_GE(folders, 19);
}

// A model folder whose weights and record a test may change before use.
struct Damaged {
  using Edit = std::function<void(const std::string& name, std::vector<float>& values)>;
  explicit Damaged(const std::string& family)
      : folder(folder_of(family)),
        golden(folder),
        config(Json::parse(read_file(folder + "/config.json"))) {}

  // Applies `edit` to the weights and returns the number of comparisons beyond their tolerance.
  int failed(const Edit& edit, std::vector<std::string> kinds = {"logits", "loss", "grad"}) {
    return report(edit, std::move(kinds)).failed();
  }

  VerifyReport report(const Edit& edit, std::vector<std::string> kinds) {
    VerifySubject subject;
    subject.build = [&](int64_t bound, int64_t seq) { return hf_model(config, bound, seq); };
    subject.load = [&](StateStore& store, const auto& load_weights) {
      load_weights(folder);
      if (edit) apply(store, edit);
    };
    VerifyRequest options;
    options.kinds = std::move(kinds);
    options.threads = 1;
    VerifyReport out;
    run_ranks(1, [&](Communicator& comm) { out = verify(subject, golden, options, comm); });
    return out;
  }

  static void apply(StateStore& store, const Edit& edit) {
    for (size_t p = 0; p < store.param_names().size(); ++p) {
      auto index = static_cast<int32_t>(p);
      std::vector<float> values = store.read_tensor(ParamId(index), "master"), before = values;
      edit(store.param_names()[p], values);
      if (values != before) store.write_tensor(ParamId(index), "master", values);
    }
  }

  std::string folder;
  Golden golden;
  Json config;
};

class Sensitivity : public testing::TestWithParam<const char*> {};

TEST_P(Sensitivity, ScalingAnyTensorBy101IsDetected) {
  Damaged model(GetParam());
  EXPECT_EQ(model.failed({}), 0);
  const std::vector<std::string>& zero = model.golden.grad_zero;
  int seen = 0;
  for (const std::string& tensor : model.golden.grad_names) {
    if (std::find(zero.begin(), zero.end(), tensor) != zero.end()) continue;
    int failed = model.failed([&](const std::string& name, std::vector<float>& values) {
      if (name != tensor) return;
      for (float& v : values) v *= 1.01f;
    });
    EXPECT_GT(failed, 0) << tensor;
    ++seen;
  }
  EXPECT_EQ(static_cast<size_t>(seen) + zero.size(), model.golden.grad_names.size());
}

// Sets to zero the weights that produce what a layer adds to its input, so that the layer has no
// effect.
TEST_P(Sensitivity, ASkippedLayerIsDetected) {
  const std::vector<std::string> ends{
      "attn.c_proj.", "mlp.c_proj.", "o_proj.",       "down_proj.",       "w2.",
      "out_proj.",    "fc2.",        "output.dense.", "attention.dense.", "dense_4h_to_h."};
  Damaged model(GetParam());
  for (const char* layer : {".0.", ".1."}) {
    int cleared = 0;
    int failed = model.failed([&](const std::string& name, std::vector<float>& values) {
      size_t at = name.find(layer);
      if (at == std::string::npos || name.find("experts") < at) return;
      bool output = std::any_of(ends.begin(), ends.end(), [&](const std::string& end) {
        return name.find(end, at) != std::string::npos;
      });
      if (!output) return;
      values.assign(values.size(), 0.0f);
      ++cleared;
    });
    EXPECT_GE(cleared, 2) << layer;
    // At least the finding of logits and both findings of grad fail.
    EXPECT_GE(failed, 3) << layer;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Sensitivity,
                         testing::Values("gpt2", "llama", "mixtral", "bert", "qwen2", "opt",
                                         "mistral", "qwen3", "phi3", "gemma2", "gpt_neox"));

// The record and the run use different settings; each run must detect this.
class Runs : public testing::Test {
 protected:
  // Returns the number of findings beyond their tolerance if member `key` of the optimizer
  // parameters of `run` is `value`.
  int failed(const std::string& run, const char* key, const Json& value) {
    Damaged model("opt");
    for (GoldenRun& r : model.golden.runs) {
      if (r.name != run) continue;
      Json params = r.optimizer.at("params");
      params.set(key, value);
      r.optimizer.set("params", params);
    }
    return model.failed({}, {run});
  }
};

TEST_F(Runs, OtherOptimizerSettingsAreDetected) {
  EXPECT_EQ(failed("adamw", "lr", 1e-3), 0);
  EXPECT_GT(failed("adamw", "lr", 1.01e-3), 0);
  EXPECT_GT(failed("adamw", "weight_decay", 0.09), 0);
  EXPECT_GT(failed("adamw", "eps", 1e-6), 0);
  EXPECT_EQ(failed("sgd", "momentum", 0.9), 0);
  EXPECT_GT(failed("sgd", "momentum", 0.89), 0);
  EXPECT_GT(failed("sgd", "nesterov", true), 0);
}

TEST_F(Runs, OtherClippingAndMicroBatchesAreDetected) {
  Damaged clip("opt"), swapped("opt");
  for (GoldenRun& r : clip.golden.runs) r.clip = 0;
  EXPECT_GT(clip.failed({}, {"accum"}), 0);
  swapped.golden.micro[1] = swapped.golden.micro[0];
  EXPECT_GT(swapped.failed({}, {"accum"}), 0);
}

TEST_F(Runs, FinalParamsDetectADriftingTensor) {
  Damaged model("opt");
  for (GoldenParam& p : model.golden.final_params) {
    if (p.name.find("fc1.weight") != std::string::npos) p.l2 *= 1.0001;
  }
  EXPECT_EQ(model.failed({}, {"final_params"}), 1);
}

TEST_F(Runs, GreedyDetectsADifferentToken) {
  Damaged model("opt");
  EXPECT_EQ(model.failed({}, {"greedy"}), 0);
  model.golden.greedy[1].tokens.back() ^= 1;
  EXPECT_EQ(model.failed({}, {"greedy"}), 1);
}

TEST_F(Runs, KindsWithoutARecordAreRefused) {
  Damaged model("bert");
  expect_names(message_of([&] { model.failed({}, {"greedy"}); }, DS_ERROR_NOT_FOUND), {"greedy"});
}

// Adds a record of generated text to a model that attends to later tokens and so cannot generate
// text.
TEST_F(Runs, OnlyGreedyIsRefusedForAModelThatCannotGenerateText) {
  Damaged model("bert");
  model.golden.greedy = {{{1, 2, 3}, {4, 5}, {1, 1}}};
  VerifyReport report = model.report({}, {});
  EXPECT_EQ(report.failed(), 0) << report.text();
  EXPECT_EQ(report.refused(), 1) << report.text();
  EXPECT_EQ(report.findings.size(), 17u);
  expect_names(report.text(), {"greedy prompt 0", "later rows"});
  expect_names(message_of([&] { model.failed({}, {"greedy"}); }, DS_ERROR_UNSUPPORTED),
               {"later rows"});
}

// Replaces the prefix `from` of tensor names in a file by the shorter prefix `to`.
void rename_tensors(const std::string& path, const std::string& from, const std::string& to) {
  std::string bytes = read_file(path), wanted = "\"" + from;
  for (size_t at = 0; (at = bytes.find(wanted, at)) != std::string::npos; ++at) {
    size_t end = bytes.find('"', at + 1);
    std::string name = to + bytes.substr(at + wanted.size(), end - at - wanted.size());
    bytes.replace(at, end - at + 1, "\"" + name + "\"" + std::string(from.size() - to.size(), ' '));
  }
  write_file_atomic(path, bytes);
}

TEST(VerifyNames, NamesOfTheModelOrOfTheFileAreAccepted) {
  TempFolder folder;
  std::filesystem::copy(folder_of("gpt2"), folder / "model");
  VerifyRequest options;
  options.kinds = {"grad", "final_params"};
  options.threads = 1;
  auto verified = [&] {
    VerifyReport report;
    run_ranks(1,
              [&](Communicator& comm) { report = verify_folder(folder / "model", options, comm); });
    return report;
  };
  rename_tensors(folder / "model/model.safetensors", "transformer.", "");
  // The record still has the names of the model.
  EXPECT_EQ(verified().failed(), 0);
  rename_tensors(folder / "model/golden.safetensors", "grad.transformer.", "grad.");
  // The record now has the names of the file.
  EXPECT_EQ(verified().failed(), 0);
  rename_tensors(folder / "model/golden.safetensors", "grad.wte", "grad.w");
  expect_names(message_of([&] { verified(); }, DS_ERROR_CONFIG), {"transformer.wte.weight"});
}

TEST(VerifyKinds, ATypeWithoutRecordedNumbersIsNamed) {
  VerifyRequest options;
  options.f32 = false;
  options.threads = 1;
  auto refusal = [&](const char* family, ds_status status) {
    return message_of(
        [&] {
          run_ranks(1,
                    [&](Communicator& comm) { verify_folder(folder_of(family), options, comm); });
        },
        status);
  };
  expect_names(refusal("opt_left", DS_ERROR_NOT_FOUND),
               {"dtype bf16 needs recorded numbers in bf16"});
  options.kinds = {"loss", "grad"};
  expect_names(refusal("gpt2", DS_ERROR_CONFIG), {"rules out all requested kinds: loss, grad"});
}

TEST_F(Runs, ANanInAWeightFailsLogitsAndUpdates) {
  Damaged model("opt");
  int failed = model.failed(
      [](const std::string& name, std::vector<float>& values) {
        if (name.find("fc1.weight") != std::string::npos)
          values[0] = std::numeric_limits<float>::quiet_NaN();
      },
      {"logits", "adamw"});
  EXPECT_EQ(failed, 2);
}

}  // namespace
}  // namespace ds::test
