// Adapters beside the numbers that tests/interop/adapters.py recorded from PEFT on torch.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "adapters/peft_case.h"
#include "io/file.h"
#include "support/ranks.h"
#include "support/temp_folder.h"

namespace ds::test {
namespace {

// The largest distance of a loss from PEFT's in f64. torch in f32 keeps within 1e-6 of it.
constexpr double kLossDistance = 5e-6;

class Peft : public testing::TestWithParam<std::string> {
 protected:
  // Compares the tensors of an adapter's file with PEFT's after the last step, each within ten
  // times the distance that torch's f32 has from f64, and a rounding.
  void expect_after(const std::map<std::string, Tensor>& saved) const {
    const std::map<std::string, Tensor> after = read_tensors(case_.folder + "/after.safetensors");
    const Json& measured = numbers_.at("measured_abs");
    ASSERT_EQ(saved.size(), after.size());
    for (const auto& [name, tensor] : after) {
      ASSERT_TRUE(saved.contains(name)) << name;
      EXPECT_LE(largest_distance(saved.at(name), tensor), 10 * measured.at(name).number() + 2e-6)
          << name;
    }
  }

  void expect_steps(int stage, int world) {
    const Json::Array& losses = numbers_.at("loss_f64").array();
    const std::string saved = folder_ / fmt::format("w{}s{}", world, stage);
    run_ranks(world, [&](Communicator& comm) {
      Engine engine(case_.config(stage, world), case_.model.graph, comm, {});
      engine.checkpoints().load_weights(case_.base);
      engine.checkpoints().load_weights(case_.folder);
      for (size_t i = 0; i + 1 < losses.size(); ++i)
        EXPECT_NEAR(engine.train_batch(case_.batch.views).loss, losses[i].number(), kLossDistance)
            << "step " << i;
      EXPECT_NEAR(engine.eval_batch(case_.batch.views), losses.back().number(), kLossDistance);
      engine.checkpoints().save_weights(saved);
    });
    expect_after(read_tensors(saved + "/adapter_model.safetensors"));
  }

  PeftCase case_{GetParam()};
  Json numbers_ = Json::parse(read_file(case_.folder + "/golden.json"));
  TempFolder folder_;
};

TEST_P(Peft, TwentyStepsEqualTheRecord) { expect_steps(0, 1); }
// The recorded masks of dropout are those of the first rank.
TEST_P(Peft, TwentyStepsOfPartitionedRanksEqualTheRecord) {
  expect_steps(3, GetParam().ends_with("dropout") ? 1 : 2);
}

// The keys that libds writes must mean the adapter that it has read.
TEST_P(Peft, TheSavedFolderDescribesTheSameAdapter) {
  run_ranks(1, [&](Communicator& comm) {
    Engine engine(case_.config(0, 1), case_.model.graph, comm, {});
    engine.checkpoints().load_weights(case_.base);
    engine.checkpoints().load_weights(case_.folder);
    engine.checkpoints().save_weights(folder_ / "saved");
  });
  const std::string saved = folder_ / "saved";
  EXPECT_EQ(adapter_json(read_adapter_config(saved)).dump(),
            adapter_json(read_adapter_config(case_.folder)).dump());
  EXPECT_EQ(adapter_base(saved), case_.base);
  const auto before = read_tensors(case_.folder + "/adapter_model.safetensors"),
             after = read_tensors(saved + "/adapter_model.safetensors");
  ASSERT_EQ(before.size(), after.size());
  for (const auto& [name, tensor] : before) EXPECT_TRUE(after.at(name) == tensor) << name;
}

INSTANTIATE_TEST_SUITE_P(Models, Peft, testing::ValuesIn(peft_cases()), [](const auto& info) {
  std::string name = info.param;
  std::ranges::replace(name, '-', '_');
  return name;
});

}  // namespace
}  // namespace ds::test
