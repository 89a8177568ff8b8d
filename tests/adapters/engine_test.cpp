// What an adapter does to an engine: bits, memory, checkpoints, and refusals.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <set>

#include "adapters/peft_case.h"
#include "checkpoint/convert.h"
#include "checkpoint/folder.h"
#include "checkpoint/manifest.h"
#include "core/base/json.h"
#include "core/config/parse_config.h"
#include "io/file.h"
#include "nn/adapter_names.h"
#include "passes/adapters.h"
#include "support/errors.h"
#include "support/ranks.h"
#include "support/same_bits.h"
#include "support/temp_folder.h"

namespace ds::test {
namespace {

namespace fs = std::filesystem;

class AdapterEngine : public testing::Test, protected PeftEngines {
 protected:
  AdapterEngine() : PeftEngines("llama") {}
  TempFolder folder_;
};

TEST_F(AdapterEngine, StagesAndTiersHaveTheSameBits) {
  for (DType compute : {DS_DTYPE_F32, DS_DTYPE_BF16}) {
    for (int world : {1, 2, 3}) {
      std::set<std::string> hashes;
      for (int stage : {0, 1, 2, 3}) {
        for (Tier tier : {Tier::device, Tier::host}) {
          if (stage == 0 && tier != Tier::device) continue;
          Config config = case_.config(stage, world);
          config.compute = compute;
          config.zero.optimizer_tier = tier;
          config.get<AdapterKeys>().dropout = 0.1;
          hashes.insert(run(config, world, [&](Engine& engine) {
            load(engine);
            train(engine, 3);
          }));
        }
      }
      EXPECT_EQ(hashes.size(), 1u) << world << " ranks";
    }
  }
}

// Two leaves of a step are the batches of two ranks, or two micro-steps of one rank.
TEST_F(AdapterEngine, RanksTiersAndRecomputationHaveTheSameBitsIfReproducible) {
  PeftBatch twice = case_.batch;
  twice.views.clear();
  for (Tensor& t : twice.tensors) {
    const std::vector<std::byte> once(t.bytes().begin(), t.bytes().end());
    Tensor both(t.dtype(), {2 * t.numel()});
    std::copy(once.begin(), once.end(), both.bytes().begin());
    std::copy(once.begin(), once.end(),
              both.bytes().begin() + static_cast<std::ptrdiff_t>(once.size()));
    t = std::move(both);
    twice.views.push_back({t.bytes().data(), DS_DTYPE_I32, t.numel()});
  }
  struct Layout {
    int world, stage;
    Tier tier;
    const char* recompute;
  };
  std::map<std::string, std::string> hashes;
  for (const Layout& layout :
       {Layout{2, 0, Tier::device, "none"}, Layout{1, 0, Tier::device, "none"},
        Layout{1, 2, Tier::device, "layers"}, Layout{2, 3, Tier::nvme, "none"},
        Layout{1, 3, Tier::nvme, "cheap"}, Layout{2, 3, Tier::host, "layers"}}) {
    Config config = case_.config(layout.stage, layout.world);
    config.accumulation = 2 / layout.world;
    config.reproducible = true;
    config.recompute = layout.recompute;
    config.zero.optimizer_tier = layout.tier;
    if (layout.stage == 3) config.zero.param_tier = layout.tier;
    config.zero.nvme_path = folder_.path();
    config.get<AdapterKeys>().dropout = 0.1;
    const PeftBatch& batch = layout.world == 1 ? twice : case_.batch;
    auto steps = [&](Engine& engine) {
      for (int i = 0; i < 2; ++i) engine.train_batch(batch.views);
    };
    const std::string hash = run(config, layout.world, [&](Engine& engine) {
      load(engine);
      steps(engine);
      if (hashes.empty()) engine.checkpoints().save(folder_ / "saved");
      steps(engine);
    });
    const std::string name = fmt::format("{} ranks, stage {}, {}, {}", layout.world, layout.stage,
                                         tier_name(layout.tier), layout.recompute);
    hashes[hash] = name;
    EXPECT_EQ(run(config, layout.world,
                  [&](Engine& engine) {
                    engine.checkpoints().load(folder_ / "saved");
                    steps(engine);
                  }),
              hash)
        << "resumed on " << name;
  }
  EXPECT_EQ(hashes.size(), 1u) << testing::PrintToString(hashes);
}

TEST_F(AdapterEngine, WithBZeroEvaluationHasTheBitsOfTheBase) {
  for (DType compute : {DS_DTYPE_F32, DS_DTYPE_BF16}) {
    Config config = case_.config(0, 1), plain = config;
    config.compute = plain.compute = compute;
    plain.get<AdapterKeys>() = {};
    double with = 0, without = 1;
    Inferred adapted, base;
    run(config, 1, [&](Engine& engine) {
      engine.checkpoints().load_weights(case_.base);
      with = engine.eval_batch(case_.batch.views);
      adapted = engine.infer(case_.batch.views);
    });
    run(plain, 1, [&](Engine& engine) {
      engine.checkpoints().load_weights(case_.base);
      without = engine.eval_batch(case_.batch.views);
      base = engine.infer(case_.batch.views);
    });
    EXPECT_EQ(with, without);
    EXPECT_EQ(adapted.values, base.values);
  }
}

// Initial values follow PEFT: A uniform in +-1/sqrt(inputs), B zero.
TEST_F(AdapterEngine, InitialValuesAreThoseOfPeft) {
  run(case_.config(0, 1), 1, [&](Engine& engine) {
    const StateStore& store = engine.store();
    for (ParamId p : store.param_names().ids()) {
      const std::string& name = store.param_names()[p];
      if (!is_adapter_param(name)) continue;
      const std::vector<float> values = engine.store().read_tensor(p, "param");
      const bool b = name.find(".lora_B.") != name.npos;
      const double bound =
          b ? 0 : 1 / std::sqrt(static_cast<double>(engine.store().param_shapes()[p][1]));
      double most = 0, sum = 0;
      for (float x : values) most = std::max<double>(most, std::fabs(x)), sum += x;
      EXPECT_LE(most, bound) << name;
      if (b) continue;
      EXPECT_GT(most, 0.9 * bound) << name;
      EXPECT_LT(std::fabs(sum / static_cast<double>(values.size())), 0.3 * bound) << name;
    }
  });
}

// The base costs its compute copy only: no master, state or gradient.
TEST_F(AdapterEngine, MemoryOfTheBaseIsItsComputeCopy) {
  Config config = case_.config(0, 1);
  config.compute = DS_DTYPE_BF16;
  run(config, 1, [&](Engine& engine) {
    int64_t adapters = 0, base = 0;
    for (ParamId p : engine.store().param_names().ids()) {
      int64_t padded = 1;
      for (int64_t extent : engine.store().param_shapes()[p]) padded *= extent;
      padded = (padded + 255) / 256 * 256;
      (is_adapter_param(engine.store().param_names()[p]) ? adapters : base) += padded;
    }
    for (const auto& [place, bytes] : engine.store().state_bytes()) {
      const std::string& kind = place.second;
      if (kind == "param") {
        EXPECT_EQ(bytes, 2 * (adapters + base));
      } else {
        EXPECT_LE(bytes, 4 * adapters) << kind;
      }
    }
    for (const Parameter& param : engine.plan().graph.params)
      EXPECT_EQ(param.grad.exists(), is_adapter_param(param.name)) << param.name;
  });
}

// Returns the number of parameters of the adapters of an engine.
int64_t adapter_elements(const Engine& engine) {
  int64_t sum = 0;
  for (ParamId p : engine.store().param_names().ids()) {
    int64_t numel = 1;
    for (int64_t extent : engine.store().param_shapes()[p]) numel *= extent;
    if (is_adapter_param(engine.store().param_names()[p])) sum += numel;
  }
  return sum;
}

// With AdamW, a checkpoint has a master or an f32 parameter and two moments of each element of an
// adapter, and nothing of the base.
TEST_F(AdapterEngine, ACheckpointHoldsTwelveBytesForEachElement) {
  for (DType compute : {DS_DTYPE_F32, DS_DTYPE_BF16}) {
    Config config = case_.config(2, 2);
    config.compute = compute;
    const std::string saved = folder_ / dtype_name(compute);
    int64_t elements = 0;
    run(config, 2, [&](Engine& engine) {
      load(engine);
      train(engine, 1);
      engine.checkpoints().save(saved);
      if (engine.runtime().comm().rank() == 0) elements = adapter_elements(engine);
    });
    int64_t tensors = 0, all = 0;
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(saved)) {
      if (!entry.is_regular_file()) continue;
      all += static_cast<int64_t>(entry.file_size());
      if (entry.path().extension() != ".safetensors") continue;
      for (const auto& [name, tensor] : read_tensors(entry.path()))
        tensors += static_cast<int64_t>(tensor.bytes().size());
    }
    EXPECT_EQ(tensors, 12 * elements) << dtype_name(compute);
    EXPECT_LE(all - tensors, 1'000'000) << dtype_name(compute);
  }
}

TEST_F(AdapterEngine, ACheckpointHoldsTheAdapterAndNamesItsBase) {
  const std::string trained = run(case_.config(2, 2), 2, [&](Engine& engine) {
    load(engine);
    train(engine, 2);
    engine.checkpoints().save(folder_ / "saved");
    train(engine, 2);
  });
  const std::string path = find_checkpoint(folder_ / "saved");
  const Manifest manifest = read_manifest(path);
  EXPECT_EQ(manifest.info.base.at("folder").string(), case_.base);
  for (const ManifestTensor& tensor : manifest.tensors)
    EXPECT_TRUE(is_adapter_param(tensor.name)) << tensor.name;
  // The engine loads the base itself, or uses the one that it has.
  for (bool own : {false, true}) {
    for (int stage : {0, 3}) {
      EXPECT_EQ(run(case_.config(stage, 2), 2,
                    [&](Engine& engine) {
                      if (own) engine.checkpoints().load_weights(case_.base);
                      engine.checkpoints().load(folder_ / "saved");
                      train(engine, 2);
                    }),
                trained)
          << stage;
    }
  }
}

TEST_F(AdapterEngine, AnAsynchronousSaveHoldsTheSame) {
  run(case_.config(1, 2), 2, [&](Engine& engine) {
    load(engine);
    train(engine, 1);
    engine.checkpoints().save(folder_ / "plain");
    engine.checkpoints().start_save(folder_ / "started");
    engine.checkpoints().wait();
  });
  const Manifest plain = read_manifest(find_checkpoint(folder_ / "plain")),
                 started = read_manifest(find_checkpoint(folder_ / "started"));
  ASSERT_EQ(plain.pieces.size(), started.pieces.size());
  for (size_t i = 0; i < plain.pieces.size(); ++i)
    EXPECT_EQ(plain.pieces[i].hash, started.pieces[i].hash);
}

TEST_F(AdapterEngine, AChangedBaseIsRefusedByName) {
  const std::string base = folder_ / "base";
  fs::copy(case_.base, base);
  run(case_.config(0, 1), 1, [&](Engine& engine) {
    engine.checkpoints().load_weights(base);
    train(engine, 1);
    engine.checkpoints().save(folder_ / "saved");
  });
  std::string bytes = read_file(base + "/model.safetensors");
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  write_file_atomic(base + "/model.safetensors", bytes);
  run(case_.config(0, 1), 1, [&](Engine& engine) {
    expect_names(message_of([&] { engine.checkpoints().load(folder_ / "saved"); }, DS_ERROR_CONFIG),
                 {"the base has changed", base});
  });
  fs::remove_all(base);
  run(case_.config(0, 1), 1, [&](Engine& engine) {
    expect_names(
        message_of([&] { engine.checkpoints().load(folder_ / "saved"); }, DS_ERROR_NOT_FOUND),
        {base});
  });
}

// With another factor the saved matrices would be another adapter.
TEST_F(AdapterEngine, ACheckpointOfAnotherFactorIsRefusedByName) {
  run(case_.config(0, 1), 1, [&](Engine& engine) {
    load(engine);
    train(engine, 1);
    engine.checkpoints().save(folder_ / "saved");
  });
  Config config = case_.config(3, 2);
  config.get<AdapterKeys>().alpha += 1;
  run(config, 2, [&](Engine& engine) {
    expect_names(message_of([&] { engine.checkpoints().load(folder_ / "saved"); }, DS_ERROR_CONFIG),
                 {"adapter.lora_alpha: adapter 'default' was saved in checkpoint", "saved/step-"});
  });
}

// A base that the host has changed is no longer that of the folder, so it is stored.
TEST_F(AdapterEngine, ABaseThatWasWrittenIsStored) {
  run(case_.config(0, 1), 1, [&](Engine& engine) {
    load(engine);
    const ParamId p(0);
    std::vector<float> values = engine.store().read_tensor(p, "param");
    values[0] += 1;
    engine.store().write_tensor(p, "param", values);
    engine.checkpoints().save(folder_ / "saved");
  });
  const Manifest manifest = read_manifest(find_checkpoint(folder_ / "saved"));
  EXPECT_TRUE(manifest.info.base.is_null());
  run(case_.config(0, 1), 1, [&](Engine& engine) { engine.checkpoints().load(folder_ / "saved"); });
}

TEST_F(AdapterEngine, AMergedModelComputesWhatTheAdapterComputes) {
  double with = 0;
  run(case_.config(0, 1), 1, [&](Engine& engine) {
    load(engine);
    with = engine.eval_batch(case_.batch.views);
  });
  for (const char* form : {"merged", "unmerged"}) {
    ConvertRequest request;
    request.form = form;
    request.like = std::string(form) == "merged" ? case_.base : folder_ / "merged";
    convert_checkpoint(case_.folder, folder_ / form, request);
  }
  Config plain = case_.config(0, 1);
  plain.get<AdapterKeys>() = {};
  run(plain, 1, [&](Engine& engine) {
    engine.checkpoints().load_weights(folder_ / "merged");
    EXPECT_NEAR(engine.eval_batch(case_.batch.views), with, 5e-6);
  });
  const auto base = read_tensors(case_.base + "/model.safetensors"),
             back = read_tensors(folder_ / "unmerged/model.safetensors");
  for (const auto& [name, tensor] : base)
    EXPECT_LE(largest_distance(back.at(name), tensor), 1e-6) << name;
}

std::string refusal(const Graph& graph, const std::string& section) {
  return message_of([&] { add_adapters(graph, keys_of(section)); }, DS_ERROR_CONFIG);
}

TEST_F(AdapterEngine, BadTargetsAreRefusedByName) {
  const Graph& graph = case_.model.graph;
  expect_names(refusal(graph, R"({"target_modules": ["q_proj", "w_proj"]})"),
               {"adapter.target_modules", "'w_proj'", "15 linear layers", "q_proj"});
  expect_names(refusal(graph, R"({"target_modules": "q_proj"})"), {"'q_proj' matches none"});
  expect_names(refusal(graph, R"({"target_modules": ["k_proj"], "r": 17})"),
               {"adapter.r", "k_proj", "at most 16", "got 17"});
  PeftCase tied("gpt2");
  expect_names(
      refusal(tied.model.graph, R"({"target_modules": ["c_attn"], "modules_to_save": ["wte"]})"),
      {"adapter.modules_to_save", "transformer.wte.weight", "tied"});
  expect_names(refusal(tied.model.graph, R"({"target_modules": ["wte"]})"), {"'wte'"});
}

TEST_F(AdapterEngine, AnotherBasesAdapterIsRefusedByName) {
  Config config = case_.config(0, 1);
  config.get<AdapterKeys>() = read_adapter_config(data_path("adapters/qwen3"));
  run(config, 1, [&](Engine& engine) {
    expect_names(message_of([&] { engine.checkpoints().load_weights(data_path("adapters/qwen3")); },
                            DS_ERROR_CONFIG),
                 {"adapter_model.safetensors", "tensor"});
  });
}

TEST_F(AdapterEngine, AnAdapterWithAnotherFactorIsRefused) {
  Config config = case_.config(0, 1);
  config.get<AdapterKeys>().alpha *= 2;
  run(config, 1, [&](Engine& engine) {
    expect_names(
        message_of([&] { engine.checkpoints().load_weights(case_.folder); }, DS_ERROR_CONFIG),
        {"adapter_config.json", "factor", "in this engine"});
  });
}

TEST_F(AdapterEngine, ATrainedBaseHasNoRoomInTheFolderOfAnAdapter) {
  run(case_.config(0, 1), 1, [&](Engine& engine) {
    load(engine);
    const auto& names = engine.store().param_names();
    for (ParamId p : names.ids()) {
      if (names[p] != "model.layers.0.self_attn.q_proj.weight") continue;
      const int32_t number = p.number();
      engine.trained().freeze(std::span(&number, 1), 0);
    }
    train(engine, 1);
    expect_names(
        message_of([&] { engine.checkpoints().save_weights(folder_ / "a", ""); }, DS_ERROR_STATE),
        {"q_proj.weight", "was trained", "modules_to_save"});
  });
}

TEST_F(AdapterEngine, ConversionsDoNotDropAnAdapter) {
  run(case_.config(0, 1), 1, [&](Engine& engine) {
    load(engine);
    engine.checkpoints().save(folder_ / "saved");
  });
  ConvertRequest request;
  request.form = "fp32";
  request.like = case_.base;
  expect_names(message_of([&] { convert_checkpoint(folder_ / "saved", folder_ / "x", request); },
                          DS_ERROR_UNSUPPORTED),
               {"holds an adapter", case_.base, "libds merge"});
  request = {};
  request.form = "unmerged";
  expect_names(message_of([&] { convert_checkpoint(case_.folder, folder_ / "y", request); },
                          DS_ERROR_INVALID_ARGUMENT),
               {"like", "got none"});
}

// Such an expression takes exponential time in a matcher that goes back.
TEST(AdapterNames, ExpressionsTakePolynomialTime) {
  const AdapterKeys keys =
      keys_of(R"({"target_modules": "(.*)*(.*)*(.*)*x", "rank_pattern": {"((.*)*)*y": 2}})");
  EXPECT_FALSE(is_target(keys, "model.layers.10.self_attn.q_proj.and.a.long.name.of.a.module"));
  EXPECT_EQ(rank_of(keys, "model.layers.10.self_attn.q_proj.and.a.long.name.of.a.module"), 8);
}

TEST(AdapterKeys, BadKeysAreRefusedByName) {
  auto refused = [](const std::string& section) {
    return message_of([&] { keys_of(section); }, DS_ERROR_CONFIG);
  };
  expect_names(refused(R"({"r": 4})"), {"adapter.target_modules", "missing"});
  expect_names(refused(R"({"r": 0, "target_modules": ["a"]})"), {"adapter.r"});
  expect_names(refused(R"({"target_modules": "(", "r": 4})"),
               {"adapter.target_modules", "regular expression"});
  expect_names(refused(R"({"target_modules": ["a"], "use_qalora": true})"), {"adapter.use_qalora"});
  expect_names(refused(R"({"target_modules": ["a"], "modules_to_save": [""]})"),
               {"adapter.modules_to_save", "empty"});
  expect_names(refused(R"({"target_modules": ["a"], "layers_pattern": ["("]})"),
               {"adapter.layers_pattern", "regular expression"});
  const std::string deep = std::string(400, '(') + "a" + std::string(400, ')');
  expect_names(refused(R"({"target_modules": ")" + deep + "\"}"), {"more than 20 deep"});
  expect_names(refused(R"({"target_modules": ")" + std::string(2000, 'a') + "\"}"),
               {"at most 1000 bytes, got 2000"});
  expect_names(refused(R"({"target_modules": ["a"], "rnak": 2})"), {"adapter.rnak", "unknown key"});
  expect_names(refused(R"({"type": "ia3", "target_modules": ["a"]})"), {"adapter.type"});
  expect_names(message_of([&] { keys_of(R"({"folder": "/nowhere"})"); }, DS_ERROR_NOT_FOUND),
               {"adapter.folder", "/nowhere"});
  expect_names(refused(R"({"target_modules": "all-linear", "layers_to_transform": [0]})"),
               {"adapter.layers_to_transform"});
  EXPECT_EQ(keys_of(R"({"lora_r": 3, "target_modules": "ALL-linear"})").r, 3);
}

}  // namespace
}  // namespace ds::test
