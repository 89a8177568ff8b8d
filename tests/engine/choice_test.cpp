// Ranks whose programs need different amounts of memory agree on the choices of the compilation.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "compile/pipeline.h"
#include "compile/search.h"
#include "core/program/choices.h"
#include "engine/delegate.h"
#include "engine/engine.h"
#include "support/errors.h"
#include "support/models.h"
#include "support/ranks.h"

namespace ds::test::choice_test {
namespace {

// Extents of matrices that share a bucket: Newton-Schulz multiplies 16 x 16 matrices for the first
// one and 64 x 64 for the last one, which only one rank updates.
constexpr int64_t kWide = 256, kMiddle = 16, kNarrow = 64, kRows = 2;

Graph unequal_matrices() {
  Graph g;
  g.name = "unequal";
  g.bound = kRows;
  const ValueId x = g.add_input("x", {DS_DTYPE_F32, Shape{Dim::n(), kWide}});
  const ValueId target = g.add_input("target", {DS_DTYPE_F32, Shape{Dim::n(), kNarrow}});
  ValueId y = x;
  for (const auto& [rows, cols] :
       {std::pair{kMiddle, kWide}, std::pair{kNarrow, kMiddle}, std::pair{kNarrow, kNarrow}}) {
    const std::string name = "h.0." + std::to_string(g.params.size());
    const ValueId w = g.add_param(name, {DS_DTYPE_F32, Shape{rows, cols}}, {"normal", 0.1});
    y = g.add("linear", {y, w});
  }
  g.add_output("loss", g.add("mse", {y, target}));
  return g;
}

Config config_for(int world) {
  Config c = make_config(1, 1, world);
  c.emulate_tiers = true;
  c.zero.optimizer_tier = Tier::host;
  c.gradient_clipping = 0;
  c.optimizer.type = "Muon";
  c.optimizer.lr = 0.01;
  c.optimizer.ns_method = "gram";
  return c;
}

// Returns the bytes of device memory that a rank needs with each choice.
std::vector<int64_t> needs_of(const Config& config, int rank, int world) {
  std::vector<int64_t> out;
  PlanPrograms programs;
  for (size_t i = 0; i < choices_by_memory(config).size(); ++i) {
    programs.first_choice = i;
    const Plan plan = compile_plan(unequal_matrices(), config, rank, world, {}, true, programs);
    EXPECT_EQ(plan.choice, i);
    out.push_back(plan.memory.total(Tier::device));
  }
  return out;
}

size_t first_that_fits(const std::vector<int64_t>& needs, int64_t budget) {
  return static_cast<size_t>(
      std::find_if(needs.begin(), needs.end(), [&](int64_t n) { return n <= budget; }) -
      needs.begin());
}

std::vector<float> trained(Engine& engine) {
  const std::vector<float> x(kRows * kWide, 0.5f), target(kRows * kNarrow, 1.0f);
  const InputView inputs[] = {{x.data(), DS_DTYPE_F32, std::ssize(x)},
                              {target.data(), DS_DTYPE_F32, std::ssize(target)}};
  for (int step = 0; step < 2; ++step) engine.train_batch(inputs);
  return engine.store().read_tensor(ParamId(0), "master");
}

// A rank with enough memory adopts the choice of the rank that needs most; the bits are the same.
TEST(Choice, RanksThatNeedDifferentMemoryAgree) {
  for (int world : {2, 3}) {
    Config config = config_for(world);
    std::vector<std::vector<int64_t>> needs;
    std::set<int64_t> budgets;
    for (int r = 0; r < world; ++r) {
      needs.push_back(needs_of(config, r, world));
      budgets.insert(needs.back().begin(), needs.back().end());
    }
    std::vector<float> expected;
    run_ranks(world, [&](Communicator& comm) {
      Engine engine(config, unequal_matrices(), comm, {});
      const std::vector<float> master = trained(engine);
      if (comm.rank() == 0) expected = master;
    });
    int unequal = 0;
    for (int64_t budget : budgets) {
      std::set<size_t> alone;
      for (const std::vector<int64_t>& n : needs) alone.insert(first_that_fits(n, budget));
      if (alone.size() == 1 || *alone.rbegin() == needs[0].size()) continue;
      ++unequal;
      config.memory_budget.device = budget;
      run_ranks(world, [&](Communicator& comm) {
        Engine engine(config, unequal_matrices(), comm, {});
        EXPECT_GE(engine.plan().choice, *alone.rbegin());
        EXPECT_EQ(engine.plan().choices, choices_by_memory(config)[engine.plan().choice]);
        EXPECT_LE(engine.plan().memory.total(Tier::device), budget);
        EXPECT_EQ(trained(engine), expected) << "rank " << comm.rank();
      });
    }
    EXPECT_GT(unequal, 0) << "of " << world << " ranks none needs more than another";
  }
}

// If a single rank has too little memory for any choice, every rank gets an error that names a
// rank.
TEST(Choice, ARankWithoutEnoughMemoryFailsAllRanks) {
  for (int world : {2, 3}) {
    Config config = config_for(world);
    std::vector<int64_t> least;
    for (int r = 0; r < world; ++r) {
      const std::vector<int64_t> needs = needs_of(config, r, world);
      least.push_back(*std::min_element(needs.begin(), needs.end()));
    }
    const auto most = std::max_element(least.begin(), least.end());
    config.memory_budget.device = *most - 1;
    ASSERT_LE(*std::min_element(least.begin(), least.end()), *most - 1);
    run_ranks(world, [&](Communicator& comm) {
      expect_names(
          message_of([&] { Engine(config, unequal_matrices(), comm, {}); }, DS_ERROR_OUT_OF_MEMORY),
          {"rank ", "memory_budget is too small for this plan"});
    });
  }
}

// Either all ranks follow a host's recorded step, or none does.
TEST(Choice, RanksAgreeOnARecordedStep) {
  for (int world : {2, 3}) {
    Config config = config_for(world);
    std::vector<int64_t> taken(static_cast<size_t>(world)), idle(taken);
    auto run = [&](int64_t budget) {
      std::vector<char> recorded(static_cast<size_t>(world));
      config.memory_budget.device = budget;
      run_ranks(world, [&](Communicator& comm) {
        const auto rank = static_cast<size_t>(comm.rank());
        DelegateEngine engine(config, comm, {});
        const IdVector<ParamId, int64_t> numels{kMiddle * kWide, kNarrow * kNarrow};
        engine.add_param("wide", {kMiddle, kWide});
        engine.add_param("square", {kNarrow, kNarrow});
        engine.start();
        idle[rank] = engine.runtime().mapped(Tier::device);
        for (int step = 0; step < 3; ++step) {
          for (ParamId p : numels.ids()) {
            const std::vector<float> grad(static_cast<size_t>(numels[p]), 0.01f);
            engine.gather({&p, 1});
            engine.release({&p, 1});
            engine.grad_ready(p, {grad.data(), DS_DTYPE_F32, numels[p]});
          }
          engine.end_micro_step();
          engine.step();
        }
        taken[rank] = engine.runtime().mapped(Tier::device);
        recorded[rank] = engine.recorded();
      });
      return recorded;
    };
    for (char recorded : run(-1)) EXPECT_TRUE(recorded);
    const auto [least, most] = std::minmax_element(taken.begin(), taken.end());
    ASSERT_LT(*least, *most);
    const int64_t begin = *std::max_element(idle.begin(), idle.end()), end = *most;
    for (int64_t budget = begin; budget < end; budget += (end - begin) / 4 + 1) {
      const std::vector<char> recorded = run(budget);
      EXPECT_EQ(std::set<char>(recorded.begin(), recorded.end()).size(), 1u) << budget;
    }
  }
}

}  // namespace
}  // namespace ds::test::choice_test
