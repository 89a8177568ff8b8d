// Magnitudes of adapters (DoRA). The recorded steps of PEFT are in peft_test.cpp.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "adapters/peft_case.h"
#include "checkpoint/convert.h"
#include "io/file.h"
#include "nn/adapter_names.h"
#include "support/errors.h"
#include "support/ranks.h"
#include "support/same_bits.h"
#include "support/temp_folder.h"

namespace ds::test {
namespace {

class Dora : public testing::TestWithParam<std::string>, protected PeftEngines {
 protected:
  Dora() : PeftEngines(GetParam()) {}
  TempFolder folder_;
};

// The magnitudes of a new adapter are the norms of the weights, to the bit.
TEST_P(Dora, WithBZeroEvaluationHasTheBitsOfTheBase) {
  for (DType compute : {DS_DTYPE_F32, DS_DTYPE_BF16}) {
    Config config = case_.config(0, 1), plain = config;
    config.compute = plain.compute = compute;
    plain.get<AdapterKeys>() = {};
    std::vector<float> with, without;
    run(config, 1, [&](Engine& engine) {
      engine.checkpoints().load_weights(case_.base);
      with = engine.infer(case_.batch.views).values;
    });
    run(plain, 1, [&](Engine& engine) {
      engine.checkpoints().load_weights(case_.base);
      without = engine.infer(case_.batch.views).values;
    });
    EXPECT_EQ(with, without);
  }
}

// A model that no folder gives has magnitudes as well.
TEST_P(Dora, AModelFromScratchBeginsAtItsNorms) {
  Config config = case_.config(2, 2), plain = config;
  plain.get<AdapterKeys>() = {};
  double with = 0, without = 1;
  run(config, 2, [&](Engine& engine) { with = engine.eval_batch(case_.batch.views); });
  run(plain, 2, [&](Engine& engine) { without = engine.eval_batch(case_.batch.views); });
  EXPECT_EQ(with, without);
}

TEST_P(Dora, StagesRecomputationAndResumesHaveTheSameBits) {
  std::string first;
  for (int stage : {0, 2, 3}) {
    Config config = case_.config(stage, 2);
    config.compute = DS_DTYPE_BF16;
    config.recompute = stage == 2 ? "layers" : "none";
    const std::string trained = run(config, 2, [&](Engine& engine) {
      load(engine);
      train(engine, 2);
      if (first.empty()) engine.checkpoints().save(folder_ / "saved");
      train(engine, 2);
    });
    if (first.empty()) first = trained;
    EXPECT_EQ(trained, first) << stage;
    EXPECT_EQ(run(config, 2,
                  [&](Engine& engine) {
                    engine.checkpoints().load(folder_ / "saved");
                    train(engine, 2);
                  }),
              first)
        << "resumed at stage " << stage;
  }
}

TEST_P(Dora, AMergedModelComputesWhatTheAdapterComputes) {
  double with = 0;
  run(case_.config(0, 1), 1, [&](Engine& engine) {
    load(engine);
    with = engine.eval_batch(case_.batch.views);
  });
  ConvertRequest request;
  request.form = "merged";
  request.like = case_.base;
  convert_checkpoint(case_.folder, folder_ / "merged", request);
  Config plain = case_.config(0, 1);
  plain.get<AdapterKeys>() = {};
  run(plain, 1, [&](Engine& engine) {
    engine.checkpoints().load_weights(folder_ / "merged");
    EXPECT_NEAR(engine.eval_batch(case_.batch.views), with, 5e-6);
  });
  request.form = "unmerged";
  request.like = folder_ / "merged";
  expect_names(message_of([&] { convert_checkpoint(case_.folder, folder_ / "x", request); },
                          DS_ERROR_UNSUPPORTED),
               {case_.folder, "use_dora", "norms"});
}

TEST_P(Dora, AnAdapterWithoutMagnitudesIsRefused) {
  Config config = case_.config(0, 1);
  config.get<AdapterKeys>().use_dora = false;
  run(config, 1, [&](Engine& engine) {
    expect_names(
        message_of([&] { engine.checkpoints().load_weights(case_.folder); }, DS_ERROR_CONFIG),
        {"adapter_config.json", "use_dora is true there, but false in this engine"});
  });
}

INSTANTIATE_TEST_SUITE_P(Models, Dora, testing::Values("llama-dora", "gpt2-dora"),
                         [](const auto& info) {
                           return info.param.substr(0, info.param.find('-'));
                         });

}  // namespace
}  // namespace ds::test
