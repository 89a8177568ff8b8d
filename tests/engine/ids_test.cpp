// Tests ids in an engine's inputs: -100 marks a target without a loss and is refused everywhere
// else.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "core/graph/graph.h"
#include "engine/engine.h"
#include "support/errors.h"
#include "support/models.h"

namespace ds::test {
namespace {

InputView view(const std::vector<int32_t>& ids) {
  return {ids.data(), DS_DTYPE_I32, static_cast<int64_t>(ids.size())};
}

TEST(EngineIds, IgnoredTargetsAreRefusedAsTokens) {
  const Config config = make_config(0, 1, 1);
  auto comm = create_communicator("self", {});
  Engine engine(config, make_tiny_gpt(1, 6, 2, 11, 4, 4, 0), *comm, {});
  const std::vector<int32_t> good{1, 2, 3, 4}, ignored{1, -100, 3, -100}, large{1, 2, 11, 4};
  EXPECT_TRUE(std::isfinite(engine.train_batch(std::vector{view(good), view(ignored)}).loss));
  auto refused = [&](const std::vector<int32_t>& tokens, const std::vector<int32_t>& targets) {
    return message_of(
        [&] {
          engine.train_batch(std::vector{view(tokens), view(targets)});
        },
        DS_ERROR_INVALID_ARGUMENT);
  };
  expect_names(refused(ignored, good),
               {"input 'tokens' must have ids from 0 to 10, got -100 at 1"});
  expect_names(refused(good, large), {"input 'targets' must have ids from 0 to 10, got 11 at 2"});
}

// A graph may use one input both as tokens and as targets.
TEST(EngineIds, IgnoredTargetsAreRefusedIfTargetsAreAlsoTokens) {
  Graph g;
  g.name = "both";
  g.bound = 4;
  ValueId ids = g.add_input("ids", {DS_DTYPE_I32, Shape{Dim::n()}});
  ValueId table = g.add_param("table", {DS_DTYPE_F32, Shape{7, 7}}, {"normal", 0.1});
  g.add_output("loss", g.add("cross_entropy", {g.add("embedding", {table, ids}), ids}, {}, "loss"));
  auto comm = create_communicator("self", {});
  Engine engine(make_config(0, 1, 1), std::move(g), *comm, {});
  const std::vector<int32_t> good{1, 2, 3, 4}, ignored{1, -100, 3, 4};
  EXPECT_TRUE(std::isfinite(engine.train_batch(std::vector{view(good)}).loss));
  const std::string message = message_of([&] { engine.train_batch(std::vector{view(ignored)}); },
                                         DS_ERROR_INVALID_ARGUMENT);
  expect_names(message, {"input 'ids' must have ids from 0 to 6, got -100 at 1"});
}

}  // namespace
}  // namespace ds::test
