#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "comm/communicator.h"
#include "engine/engine.h"
#include "support/models.h"

namespace ds {
namespace {

// Hundreds of parameters whose lengths are not multiples of the alignment leave as many gaps
// between them.
TEST(Engine, TrainsAModelOfHundredsOfLayers) {
  for (int stage : {0, 3}) {
    const Config config = test::make_config(stage, 1, 1);
    auto comm = create_communicator("self", {});
    Engine engine(config, test::make_tiny_gpt(40, 6, 2, 11, 4, 8, 0), *comm, {});
    const std::vector<int32_t> tokens{1, 2, 3, 4, 5, 6, 7, 8},
        targets{2, 3, 4, -100, 6, 7, 8, -100};
    const InputView inputs[] = {{tokens.data(), DS_DTYPE_I32, 8},
                                {targets.data(), DS_DTYPE_I32, 8}};
    const double first = engine.train_batch(inputs).loss;
    double last = first;
    for (int step = 0; step < 4; ++step) last = engine.train_batch(inputs).loss;
    EXPECT_TRUE(std::isfinite(first)) << "stage " << stage;
    EXPECT_LT(last, first) << "stage " << stage;
  }
}

}  // namespace
}  // namespace ds
