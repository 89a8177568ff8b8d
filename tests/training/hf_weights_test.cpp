#include <gtest/gtest.h>

#include <cstring>

#include "core/base/error.h"
#include "engine/engine.h"
#include "io/file.h"
#include "support/hf_golden.h"
#include "support/models.h"
#include "support/ranks.h"
#include "support/same_bits.h"
#include "support/temp_folder.h"

namespace ds::test {
namespace {

// A batch in the form that an engine accepts.
struct Batch {
  Batch(const HfGolden& golden, const HfModel& model) {
    for (ValueId id : model.graph.inputs) {
      tensors.push_back(golden.input(model, model.graph.values[id].name));
    }
    for (Tensor& t : tensors) views.push_back({t.bytes().data(), DS_DTYPE_I32, t.numel()});
  }
  std::vector<Tensor> tensors;
  std::vector<InputView> views;
};

class HfWeights : public testing::TestWithParam<std::string> {
 protected:
  // Loads the folder into engines at this stage, compares parameters and loss with the record,
  // saves, and compares the saved files.
  void round_trip(int world, int stage) {
    std::string path = golden_path(GetParam()),
                saved = folder_ / fmt::format("w{}s{}", world, stage);
    HfGolden golden(path);
    double loss = golden.numbers.at("loss").at("value").number();
    double tolerance = golden.numbers.at("tolerance").at("loss").at("abs").number();
    run_ranks(world, [&](Communicator& comm) {
      HfModel model = golden.build();
      Config config = make_config(stage, 1, world);
      config.zero.param_persistence_threshold = 100;
      config.compute = DS_DTYPE_F32;
      Engine engine(config, model.graph, comm, {});
      engine.checkpoints().load_weights(path);
      for (size_t p = 0; p < engine.store().param_names().size(); ++p) {
        const Tensor& stored = golden.weights.at(engine.store().param_names()[p]);
        for (const char* kind : {"master", "param"}) {
          std::vector<float> values = engine.store().read_tensor(ParamId(p), kind);
          ASSERT_EQ(values.size() * sizeof(float), stored.bytes().size());
          EXPECT_EQ(std::memcmp(values.data(), stored.bytes().data(), stored.bytes().size()), 0)
              << engine.store().param_names()[p] << " " << kind;
        }
      }
      Batch batch(golden, model);
      EXPECT_NEAR(engine.eval_batch(batch.views), loss, tolerance);
      engine.checkpoints().save_weights(saved, path);
    });
    EXPECT_EQ(read_file(saved + "/model.safetensors"), read_file(path + "/model.safetensors"));
    EXPECT_EQ(read_file(saved + "/config.json"), read_file(path + "/config.json"));
  }
  TempFolder folder_;
};

TEST_P(HfWeights, AreLoadedAndSavedBackOnOneRank) {
  round_trip(1, 0);
  round_trip(1, 3);
}

TEST_P(HfWeights, AreLoadedAndSavedBackOnTwoRanks) {
  round_trip(2, 0);
  round_trip(2, 3);
}

INSTANTIATE_TEST_SUITE_P(Models, HfWeights, testing::ValuesIn(golden_models()),
                         [](const auto& info) { return info.param; });

TEST(HfWeightsOfEngines, FailedSavesAndEarlyFailedLoadsDoNotPoison) {
  std::string path = golden_path("gpt2");
  TempFolder folder;
  HfGolden golden(path);
  run_ranks(1, [&](Communicator& comm) {
    HfModel model = golden.build();
    Engine engine(make_config(0, 1, 1), model.graph, comm, {});
    EXPECT_THROW(engine.checkpoints().load_weights(golden_path("llama")), Error);
    EXPECT_THROW(engine.checkpoints().load_weights(folder / "none"), Error);
    EXPECT_THROW(engine.checkpoints().save_weights(folder / "out", folder / "none"), Error);
    engine.checkpoints().load_weights(path);
    Batch batch(golden, model);
    engine.train_batch(batch.views);
    engine.checkpoints().save_weights(folder / "out", path);
  });
  EXPECT_NE(read_file(folder / "out/model.safetensors"), read_file(path + "/model.safetensors"));
}

}  // namespace
}  // namespace ds::test
