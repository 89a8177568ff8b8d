// Tests documents that describe what to build: config.json of Hugging Face folders, and
// configurations of runs.
#include "core/config/config.h"

#include <array>
#include <cmath>

#include "attempt.h"
#include "core/config/parse_config.h"
#include "nn/models/hf.h"
#include "optim/param_groups.h"
#include "optim/schedule.h"
#include "support/hf_golden.h"
#include "support/mutate.h"

namespace ds::test {
namespace {

// Families with options that the folders in tests/data/models do not use.
constexpr std::array<const char*, 5> kMoreModels{
    R"({"model_type": "mistral", "vocab_size": 16, "hidden_size": 8, "intermediate_size": 12,
        "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 4, "sliding_window": 4,
        "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                         "original_max_position_embeddings": 8192}})",
    R"({"model_type": "qwen3", "vocab_size": 16, "hidden_size": 8, "intermediate_size": 12, "head_dim": 4,
        "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2, "use_sliding_window": true, "sliding_window": 4,
        "max_window_layers": 1, "layer_types": ["full_attention", "sliding_attention"]})",
    R"({"model_type": "phi3", "vocab_size": 16, "hidden_size": 8, "intermediate_size": 12,
        "num_hidden_layers": 2, "num_attention_heads": 2, "resid_pdrop": 0.1, "sliding_window": 7,
        "max_position_embeddings": 32, "original_max_position_embeddings": 6,
        "rope_scaling": {"type": "longrope", "short_factor": [1, 1.5], "long_factor": [2, 4.5]}})",
    R"({"model_type": "gemma2", "vocab_size": 16, "hidden_size": 8, "intermediate_size": 12, "head_dim": 4,
        "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "sliding_window": 4,
        "hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 4, "attn_logit_softcapping": 50.0,
        "final_logit_softcapping": 30.0})",
    R"({"model_type": "gpt_neox", "vocab_size": 16, "hidden_size": 16, "intermediate_size": 12,
        "num_hidden_layers": 2, "num_attention_heads": 2, "rotary_pct": 0.5, "hidden_act": "gelu",
        "use_parallel_residual": false, "rope_scaling": {"type": "linear", "factor": 2.0}})"};

std::vector<std::string> model_configs() {
  std::vector<std::string> texts(kMoreModels.begin(), kMoreModels.end());
  for (const std::string& name : golden_models())
    texts.push_back(get_file(golden_path(name) + "/config.json"));
  return texts;
}

// The largest graph that a configuration may request if no weights contradict it.
constexpr size_t kLargestGraph = size_t{64} << 20;

class FuzzFamilies : public testing::TestWithParam<size_t> {};

TEST_P(FuzzFamilies, DamagedConfigurationsAreBuiltOrRefused) {
  std::string text = model_configs()[GetParam()];
  Json document = Json::parse(text);
  Attempts attempts(kLargestGraph);
  for (uint32_t i = 0; i < draws(600); ++i) {
    Dice dice = dice_of(31 + GetParam(), i);
    SCOPED_TRACE(i);
    attempts.run([&] {
      std::string damaged =
          dice.one_in(3) ? mutate_bytes(text, dice) : mutate_json(document, dice).dump();
      hf_model(Json::parse(damaged, "config.json"), 16, 8,
               dice.one_in(2) ? HfMode::training : HfMode::evaluation);
    });
  }
  EXPECT_GT(attempts.loaded, static_cast<int>(draws(20)));
  EXPECT_GT(attempts.refused, static_cast<int>(draws(200)));
}

INSTANTIATE_TEST_SUITE_P(All, FuzzFamilies, testing::Range(size_t{0}, model_configs().size()));

// A graph has nodes for each expert; their number was once unlimited.
TEST(FuzzModelConfig, ExpertsAreBounded) {
  Json config = Json::parse(get_file(golden_path("mixtral") + "/config.json"));
  config.set("num_local_experts", 1 << 28);
  Attempts attempts;
  EXPECT_FALSE(attempts.run([&] { hf_model(config, 16, 8); }));
}

// 1e300 positions are not representable as an integer.
TEST(FuzzModelConfig, RopeNumbersAreBounded) {
  Json config = Json::parse(kMoreModels[0]);
  Attempts attempts;
  EXPECT_TRUE(attempts.run([&] { hf_model(config, 16, 8); }));
  config.object().back().second.set("original_max_position_embeddings", 1e300);
  EXPECT_FALSE(attempts.run([&] { hf_model(config, 16, 8); }));
  config = Json::parse(kMoreModels[4]);
  config.set("rotary_pct", 1e300);
  EXPECT_FALSE(attempts.run([&] { hf_model(config, 16, 8); }));
}

TEST(FuzzRunConfig, DamagedConfigurationsAreParsedOrRefused) {
  std::string text = get_file(DS_SOURCE_DIR "/examples/train.json");
  Json document = Json::parse(text);
  // The effective configuration has every key.
  Json whole = parse_config(document, 2).effective().at("config");
  Attempts attempts;
  for (uint32_t i = 0; i < draws(6000); ++i) {
    Dice dice = dice_of(51, i);
    SCOPED_TRACE(i);
    attempts.run([&] {
      int64_t kind = dice.below(3);
      std::string damaged = kind == 0 ? mutate_bytes(text, dice)
                                      : mutate_json(kind == 1 ? document : whole, dice).dump();
      Config config =
          parse_config(Json::parse(damaged, "config"), static_cast<int>(1 + dice.below(4)));
      EXPECT_GT(config.micro_batch, 0);
      EXPECT_FALSE(config.shared_text().empty());
      config.effective();
      for (int64_t step : {0, 1, 10, 100000}) {
        GroupScalars scalars = group_scalars(config.optimizer);
        apply_schedule(config.scheduler, 0, step, scalars);
        EXPECT_FALSE(std::isnan(scalars.lr));
      }
    });
  }
  EXPECT_GT(attempts.loaded, static_cast<int>(draws(200)));
  EXPECT_GT(attempts.refused, static_cast<int>(draws(2000)));
}

}  // namespace
}  // namespace ds::test
