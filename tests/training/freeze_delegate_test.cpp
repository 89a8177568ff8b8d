// Tests frozen parameters of a delegate host.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "core/base/ids.h"
#include "engine/delegate.h"
#include "support/errors.h"
#include "support/initial.h"
#include "support/models.h"
#include "support/ranks.h"

namespace ds::test {
namespace {

// A host hands over gradients of trained parameters only; buckets without trained parameters are
// never reduced.
TEST(Freeze, ADelegateReducesTrainedParametersOnly) {
  constexpr int64_t kNumel = 4096;
  std::vector<float> ones(kNumel, 1.0f);
  for (int stage : {0, 3}) {
    run_ranks(2, [&](Communicator& comm) {
      Config c = make_config(stage, 1, 2);
      c.zero.param_persistence_threshold = 100;
      c.frozen = {"b"};
      DelegateEngine engine(c, comm, with_values({ones, ones, ones}));
      for (const char* name : {"a.0", "b", "c.0"}) engine.add_param(name, {kNumel});
      engine.start();
      auto step = [&](std::vector<int32_t> trained) {
        for (int32_t p : {0, 1, 2}) {
          ParamId one[] = {ParamId(p)};
          engine.gather(one);
          engine.release(one);
        }
        for (int32_t p : trained)
          engine.grad_ready(ParamId(p), {ones.data(), DS_DTYPE_F32, kNumel});
        engine.end_micro_step();
        engine.step();
      };
      step({0, 2});
      step({2, 0});
      EXPECT_EQ(engine.store().read_tensor(ParamId(1), "master"), ones);
      EXPECT_NE(engine.store().read_tensor(ParamId(0), "master"), ones);
      engine.gather(std::vector{ParamId(1)});
      message_of(
          [&] {
            engine.grad_ready(ParamId(1), {ones.data(), DS_DTYPE_F32, kNumel});
          },
          DS_ERROR_STATE);
      engine.release(std::vector{ParamId(1)});
      for (int32_t p : {0, 2}) engine.grad_ready(ParamId(p), {ones.data(), DS_DTYPE_F32, kNumel});
      engine.end_micro_step();
      engine.step();
      std::vector<float> kept = engine.store().read_tensor(ParamId(0), "master");
      engine.trained().freeze(std::vector<int32_t>{1}, false);
      engine.trained().freeze(std::vector<int32_t>{0}, true);
      step({1, 2});
      step({1, 2});
      EXPECT_NE(engine.store().read_tensor(ParamId(1), "master"), ones);
      EXPECT_EQ(engine.store().read_tensor(ParamId(0), "master"), kept);
      EXPECT_TRUE(engine.recorded());
    });
  }
}

}  // namespace
}  // namespace ds::test
