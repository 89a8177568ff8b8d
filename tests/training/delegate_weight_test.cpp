// Tests token-weighted losses in delegate mode, where the host sets the weight of each micro-step.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/delegate.h"
#include "engine/engine.h"
#include "support/errors.h"
#include "support/models.h"
#include "support/ranks.h"
#include "training/loss_average.h"

namespace ds::test::delegate_weight_test {
namespace {

using namespace loss_average;

// Trains a host with its own network: an engine with one rank computes the gradients of a leaf, and
// its own updates are overwritten. The host hands over the gradients of its loss times the leaf's
// weight.
Steps train_host(const Config& config, const Cut& cut, const std::vector<Text>& texts,
                 double unit) {
  Steps out;
  run_ranks(cut.ranks, [&](Communicator& comm) {
    auto self = create_communicator("self", {});
    Config own = plain_config({cut.micro, 1, 1}, false);
    Engine calculator(own, graph_of(cut.micro), *self, {});
    EngineOptions options;
    const Graph graph = graph_of(cut.micro);
    options.initial = [&](ParamId p, const std::string&, int64_t first, std::span<float> to) {
      const std::vector<float> all = calculator.store().read_tensor(p, "master");
      std::copy_n(all.begin() + first, to.size(), to.begin());
    };
    DelegateEngine engine(config, comm, options);
    for (const Parameter& p : graph.params) {
      std::vector<int64_t> dims;
      for (const Dim& d : graph.type(p.value).shape.dims()) dims.push_back(d.extent);
      engine.add_param(p.name, dims);
    }
    engine.start();
    Steps mine;
    for (const Text& text : texts) {
      for (int64_t m = 0; m < cut.accumulation; ++m) {
        const int64_t first = (m * cut.ranks + comm.rank()) * cut.micro;
        for (ParamId p : graph.params.ids()) {
          const ParamId one[] = {p};
          engine.gather(one);
          const TensorView v = engine.view(p).view;
          calculator.store().write_tensor(p, "master",
                                          {v.as<float>(), static_cast<size_t>(v.numel())});
          engine.release(one);
        }
        calculator.forward(text.views(first, cut.micro));
        calculator.backward();
        const auto begin = text.targets.begin() + first * kSeq;
        const double weight = static_cast<double>(std::count_if(begin, begin + cut.micro * kSeq,
                                                                [](int32_t t) { return t >= 0; })) /
                              unit;
        for (ParamId p(graph.params.last()); p.exists(); --p) {
          std::vector<float> grad = calculator.store().read_tensor(p, "grad");
          for (float& g : grad) g = static_cast<float>(g * weight);
          engine.grad_ready(p, {grad.data(), DS_DTYPE_F32, static_cast<int64_t>(grad.size())});
        }
        calculator.step();
        engine.set("micro_weight", weight);
        engine.end_micro_step();
      }
      if (mine.norms.empty()) mine.gradient = all_of(engine.store(), "grad");
      const StepResult r = engine.step();
      EXPECT_FALSE(r.skipped) << r.reason;
      mine.norms.push_back(r.grad_norm);
    }
    mine.masters = all_of(engine.store(), "master");
    if (comm.rank() == 0) out = mine;
  });
  return out;
}

TEST(DelegateWeight, AHostMayGiveWeights) {
  const Cut cut{1, 2, 2};
  for (int stage : {0, 2, 3}) {
    Config config = plain_config(cut, true);
    config.zero.stage = stage;
    config.optimizer.momentum = 0.5;
    // A weight is a number of targets divided by any unit: results are equal up to rounding.
    const std::vector<Text> texts = texts_of({1, 3, 0, 7}, 4);
    const Steps want = train(config, cut, graph_of(1), texts);
    for (double unit : {1.0, 3.0}) {
      const Steps got = train_host(config, cut, texts, unit);
      EXPECT_LT(distance(got.gradient, want.gradient), 1e-6) << stage;
      EXPECT_LT(distance(got.masters, want.masters), 1e-6) << stage;
      for (size_t s = 0; s < texts.size(); ++s)
        EXPECT_NEAR(got.norms[s], want.norms[s], 1e-5 * want.norms[s]);
    }
    // With weights that round no product, in the unit of native mode, the bits are equal.
    const std::vector<Text> powers = texts_of({1, 4, 8, 2}, 4);
    const Steps exact = train(config, cut, graph_of(1), powers),
                same = train_host(config, cut, powers, kSeq);
    EXPECT_EQ(same.masters, exact.masters) << stage;
    EXPECT_EQ(same.norms, exact.norms) << stage;
    EXPECT_EQ(same.gradient, exact.gradient) << stage;
  }
}

TEST(DelegateWeight, AHostWithoutAWeightIsRefused) {
  auto comm = create_communicator("self", {});
  auto started = [&](bool by_tokens) {
    auto engine = std::make_unique<DelegateEngine>(plain_config({1, 2, 1}, by_tokens), *comm,
                                                   EngineOptions{});
    engine->add_param("w", {4});
    engine->start();
    return engine;
  };
  auto refused = [](DelegateEngine& engine, double value, ds_status status, const char* part) {
    expect_names(message_of([&] { engine.set("micro_weight", value); }, status), {part});
  };
  auto plain = started(false);
  refused(*plain, 1, DS_ERROR_STATE, "needs loss_average \"tokens\", got \"micro_batch\"");
  auto engine = started(true);
  const std::vector<float> grad{1, 2, 3, 4};
  auto give = [&] { engine->grad_ready(ParamId(0), {grad.data(), DS_DTYPE_F32, 4}); };
  for (double bad : {-1.0, std::nan(""), HUGE_VAL})
    refused(*engine, bad, DS_ERROR_INVALID_ARGUMENT,
            "micro_weight must be a finite number of at least 0, got");
  give();
  expect_names(message_of([&] { engine->end_micro_step(); }, DS_ERROR_STATE),
               {"ds_backward needs the weight of micro-step 0"});
  engine->set("micro_weight", 7);
  // The last call before the end of the micro-step applies.
  engine->set("micro_weight", 1);
  EXPECT_EQ(engine->micro_steps().get("micro_weight"), 1);
  engine->end_micro_step();
  EXPECT_TRUE(std::isnan(*engine->micro_steps().get("micro_weight")));
  give();
  engine->set("micro_weight", 3);
  engine->end_micro_step();
  refused(*engine, 1, DS_ERROR_STATE, "comes after 2 of 2 micro-steps");
  EXPECT_EQ(engine->store().read_tensor(ParamId(0), "grad"), (std::vector<float>{0.5, 1, 1.5, 2}));
  EXPECT_FALSE(engine->step().skipped);
  for (int m = 0; m < 2; ++m) {
    engine->set("micro_weight", 0);
    engine->end_micro_step();
  }
  const StepResult r = engine->step();
  EXPECT_TRUE(r.skipped);
  expect_names(r.reason, {"step 2 is skipped: the weights of its micro-steps are all 0"});
  engine->evaluate(true);
  refused(*engine, 1, DS_ERROR_STATE, "needs training");
}

}  // namespace
}  // namespace ds::test::delegate_weight_test
