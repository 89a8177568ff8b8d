// Several adapters on one base: each is chosen by name, and only one of them trains.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "adapters/peft_case.h"
#include "checkpoint/adapter_folder.h"
#include "core/base/json.h"
#include "core/config/parse_config.h"
#include "io/file.h"
#include "support/errors.h"
#include "support/ranks.h"
#include "support/temp_folder.h"

namespace ds::test {
namespace {

class SeveralAdapters : public testing::Test, protected PeftEngines {
 protected:
  SeveralAdapters() : PeftEngines("llama") {
    make("poet", R"({"r": 3, "target_modules": ["q_proj", "down_proj"], "init_lora_weights": false,
                     "lora_dropout": 0.1})");
    make("coder", R"({"r": 2, "lora_alpha": 5, "target_modules": "all-linear", "use_dora": true,
                      "init_lora_weights": false})");
  }

  // Trains an adapter alone, saves it, and keeps its logits.
  void make(const std::string& name, const std::string& section) {
    Config config = case_.config(0, 1);
    config.get<AdapterKeys>() = keys_of(section);
    run(config, 1, [&](Engine& engine) {
      engine.checkpoints().load_weights(case_.base);
      for (int i = 0; i < 2; ++i) engine.train_batch(case_.batch.views);
      engine.checkpoints().save_weights(folder_ / name);
      logits_[name] = engine.infer(case_.batch.views).values;
      losses_[name] = engine.eval_batch(case_.batch.views);
    });
  }

  // Returns a configuration that trains the recorded adapter, with the others beside it.
  Config config(int stage, int world) const {
    Config config = case_.config(stage, world);
    const AdapterKeys others =
        keys_of(R"({"target_modules": ["q_proj"], "others": ["poet=)" + folder_ / "poet" +
                R"(", "coder=)" + folder_ / "coder" + R"("]})");
    config.get<AdapterKeys>().others = others.others;
    return config;
  }

  TempFolder folder_;
  std::map<std::string, std::vector<float>> logits_;
  std::map<std::string, double> losses_;
};

// Proves {engine.set.adapter}.
TEST_F(SeveralAdapters, EachComputesWhatItComputesAlone) {
  Config alone = case_.config(0, 1), plain = alone;
  plain.get<AdapterKeys>() = {};
  run(alone, 1, [&](Engine& engine) {
    load(engine);
    logits_["default"] = engine.infer(case_.batch.views).values;
  });
  run(plain, 1, [&](Engine& engine) {
    engine.checkpoints().load_weights(case_.base);
    logits_["base"] = engine.infer(case_.batch.views).values;
  });
  run(config(0, 1), 1, [&](Engine& engine) {
    load(engine);
    for (const auto& [name, logits] : logits_) {
      engine.set("adapter." + name, 1);
      EXPECT_EQ(engine.infer(case_.batch.views).values, logits) << name;
      if (!losses_.contains(name)) continue;
      EXPECT_EQ(engine.eval_batch(case_.batch.views), losses_[name]);
    }
    engine.set("adapter.poet", NAN);
    EXPECT_EQ(engine.infer(case_.batch.views).values, logits_["default"]);
  });
}

// A step trains the own adapter whatever evaluation has chosen, and the others stay.
TEST_F(SeveralAdapters, OnlyTheOwnTrainsAndSavesLookLikePeft) {
  for (int stage : {0, 3}) {
    std::vector<double> alone, beside;
    const std::string own = folder_ / "own", all = folder_ / "all";
    run(case_.config(stage, 2), 2, [&](Engine& engine) {
      load(engine);
      std::vector<double> losses;
      for (int i = 0; i < 3; ++i) losses.push_back(engine.train_batch(case_.batch.views).loss);
      engine.checkpoints().save_weights(own);
      alone = losses;
    });
    run(config(stage, 2), 2, [&](Engine& engine) {
      load(engine);
      engine.set("adapter.coder", 1);
      std::vector<double> losses;
      for (int i = 0; i < 3; ++i) losses.push_back(engine.train_batch(case_.batch.views).loss);
      EXPECT_NEAR(engine.eval_batch(case_.batch.views), losses_["coder"], 1e-6);
      engine.checkpoints().save(folder_ / "saved");
      engine.checkpoints().save_weights(all);
      beside = losses;
    });
    EXPECT_EQ(alone, beside);
    EXPECT_TRUE(read_tensors(own + "/" + kAdapterFile) == read_tensors(all + "/" + kAdapterFile));
    for (const char* name : {"poet", "coder"}) {
      const std::string saved = all + "/" + name, before = folder_ / name;
      EXPECT_TRUE(read_tensors(saved + "/" + kAdapterFile) ==
                  read_tensors(before + "/" + kAdapterFile));
      EXPECT_EQ(adapter_json(read_adapter_config(saved)).dump(),
                adapter_json(read_adapter_config(before)).dump());
    }
    run(config(stage, 1), 1, [&](Engine& engine) {
      engine.checkpoints().load(folder_ / "saved");
      engine.set("adapter.poet", 1);
      EXPECT_NEAR(engine.eval_batch(case_.batch.views), losses_["poet"], 1e-6);
    });
  }
}

// A checkpoint that was saved without the others leaves them as their folders have them, and
// frozen.
TEST_F(SeveralAdapters, ACheckpointMayLackTheOthers) {
  double trained = 0;
  run(case_.config(2, 2), 2, [&](Engine& engine) {
    load(engine);
    engine.train_batch(case_.batch.views);
    engine.checkpoints().save(folder_ / "saved");
    trained = engine.train_batch(case_.batch.views).loss;
  });
  run(config(2, 2), 2, [&](Engine& engine) {
    engine.checkpoints().load(folder_ / "saved");
    EXPECT_EQ(engine.train_batch(case_.batch.views).loss, trained);
    engine.set("adapter.coder", 1);
    EXPECT_NEAR(engine.eval_batch(case_.batch.views), losses_["coder"], 1e-6);
    for (const Parameter& param : engine.plan().graph.params)
      EXPECT_EQ(param.frozen, !param.name.ends_with(".default.weight")) << param.name;
  });
}

TEST_F(SeveralAdapters, BadNamesAndChoicesAreRefusedByName) {
  auto refused = [&](const std::string& others) {
    return message_of(
        [&] { keys_of(R"({"target_modules": ["q_proj"], "others": )" + others + "}"); },
        DS_ERROR_CONFIG);
  };
  const std::string poet = folder_ / "poet";
  expect_names(refused("[1]"), {"adapter.others"});
  expect_names(refused(R"(["poet"])"), {"adapter.others", "NAME=DIR", "'poet'"});
  expect_names(refused(R"(["poet="])"), {"adapter.others", "NAME=DIR"});
  expect_names(refused("[\"default=" + poet + "\"]"), {"adapter.others", "'default'", "trained"});
  expect_names(refused("[\"base=" + poet + "\"]"), {"adapter.others", "'base'"});
  expect_names(refused("[\"a.b=" + poet + "\"]"), {"adapter.others", "letters", "'a.b'"});
  expect_names(refused("[\"=" + poet + "\"]"), {"adapter.others", "letters"});
  expect_names(refused("[\"a=" + poet + "\", \"a=" + poet + "\"]"),
               {"adapter.others", "two adapters", "'a'"});
  expect_names(refused("[\"a=" + data_path("adapters/phi3") + "\"]"),
               {"adapter.others", "modules_to_save", "libds merge"});
  expect_names(message_of(
                   [&] {
                     keys_of(R"({"target_modules": ["a"], "modules_to_save": ["b"],
                                            "others": ["a=)" +
                             poet + "\"]}");
                   },
                   DS_ERROR_CONFIG),
               {"adapter.others", "modules_to_save"});
  expect_names(message_of([] { keys_of(R"({"target_modules": ["a"], "others": ["a=/nowhere"]})"); },
                          DS_ERROR_NOT_FOUND),
               {"adapter.others", "/nowhere"});
  run(config(0, 1), 1, [&](Engine& engine) {
    expect_names(message_of([&] { engine.set("adapter.painter", 1); }, DS_ERROR_NOT_FOUND),
                 {"'painter'", "default, poet, coder, base"});
    expect_names(message_of([&] { engine.set("adapter.poet", 2); }, DS_ERROR_INVALID_ARGUMENT),
                 {"adapter.poet", "must be 1", "got 2"});
  });
  PeftCase saves("phi3");
  run_ranks(1, [&](Communicator& comm) {
    Engine engine(saves.config(0, 1), saves.model.graph, comm, {});
    expect_names(message_of([&] { engine.set("adapter.base", 1); }, DS_ERROR_STATE),
                 {"base", "modules_to_save"});
  });
}

}  // namespace
}  // namespace ds::test
