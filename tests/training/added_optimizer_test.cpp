// A new optimizer needs only a row with its states, an instruction and kernels. This file adds one
// whose states no other optimizer has; placement, checkpoints, memory figures and reports handle
// them through the row.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "core/config/parse_config.h"
#include "core/program/instruction.h"
#include "engine/engine.h"
#include "kernels/kernel.h"
#include "kernels/ref/update.h"
#include "optim/optimizer.h"
#include "optim/optimizer_types.h"
#include "support/errors.h"
#include "support/run_engines.h"
#include "support/same_bits.h"
#include "support/temp_folder.h"

namespace ds::test::added_optimizer {
namespace {

constexpr const char* kType = "Prudent";

// If peak is above 0, updates p -= rate * drift / peak. Here drift is the running mean of the
// gradient and peak the largest |gradient| that the element has had.
void prudent(const KernelContext& c) {
  const auto scale = static_cast<float>(c.scalars.grad_scale),
             rate = static_cast<float>(c.scalars.group.lr);
  const auto beta = static_cast<float>(c.scalars.group.beta1);
  ref::update_of_types<2>(c, [=](float grad, float& p, std::array<float, 2>& states) {
    auto& [drift, peak] = states;
    const float g = grad * scale;
    drift = beta * drift + (1 - beta) * g;
    peak = std::max(peak, std::fabs(g));
    if (peak > 0) p -= rate * drift / peak;
  });
}

void add_kernels(KernelRegistry& registry) { registry.add({"prudent", "test", prudent, nullptr}); }

Attrs attrs(const OptimizerConfig&) { return {}; }

void add_rows() {
  if (find_instruction("prudent")) return;
  InstrDef row{.name = "prudent", .kind = Kind::update};
  row.operands = {{Role::data, Access::read},
                  {Role::scalars, Access::read},
                  {Role::data, Access::update},
                  {Role::state, Access::update, false, 2, 2},
                  {Role::data, Access::write, true}};
  row.follows_state = true;
  add_instruction(row);
  add_optimizer(
      {.types = {kType}, .op = "prudent", .states = {{"drift"}, {"peak"}}, .attrs = attrs},
      {kType, {"betas"}, {.type = kType}});
}

Point point(int world, int stage) {
  Point p;
  p.world = world;
  p.stage = stage;
  p.optimizer = kType;
  p.leaves = 2 * world;
  return p;
}

Config config_with(const Point& p) {
  Config c = config_of(p);
  c.optimizer.lr = 0.01;
  return c;
}

std::string train(const Point& p, int from, int to, const std::string& load = "",
                  const std::string& save = "") {
  auto body = [&](Engine& engine) {
    if (!load.empty()) {
      // The load overwrites the effect of this step.
      train_step(p, engine, 50);
      engine.checkpoints().load(load, "");
    }
    for (int s = from; s < to; ++s) EXPECT_FALSE(train_step(p, engine, s).skipped);
    if (!save.empty()) engine.checkpoints().save(save, {}, {}, "");
  };
  return run_engines(p, config_with(p), body, add_kernels);
}

TEST(AddedOptimizer, HasTheSameBitsAtEveryStageAndTier) {
  add_rows();
  for (int world : {1, 2, 3}) {
    const std::string expected = train(point(world, 0), 0, 6);
    for (int stage = 1; stage <= 3; ++stage) {
      Point p = point(world, stage);
      EXPECT_EQ(train(p, 0, 6), expected) << p.name();
      p.tier = stage == 2 ? Tier::nvme : Tier::host;
      p.bucket_size = 3000;
      p.chaos = 5;
      EXPECT_EQ(train(p, 0, 6), expected) << p.name();
    }
  }
}

TEST(AddedOptimizer, StatesResumeExactlyOnAnotherLayout) {
  add_rows();
  for (int stage = 0; stage <= 3; ++stage) {
    const std::string straight = train(point(2, stage), 0, 8);
    TempFolder folder;
    train(point(2, stage), 0, 4, "", folder.path());
    EXPECT_EQ(train(point(2, 3 - stage), 4, 8, folder.path()), straight) << "stage " << stage;
  }
}

TEST(AddedOptimizer, StatesAreReadAndCountedByName) {
  add_rows();
  const Point p = point(2, 1);
  auto body = [&](Engine& engine) {
    for (int s = 0; s < 3; ++s) train_step(p, engine, s);
    EXPECT_EQ(engine.store().state_kinds(), (std::vector<std::string>{"master", "drift", "peak"}));
    for (float peak : engine.store().read_tensor(ParamId(0), "peak")) EXPECT_GE(peak, 0);
    const auto bytes = engine.store().state_bytes();
    EXPECT_EQ(bytes.at({Tier::device, "drift"}), bytes.at({Tier::device, "peak"}));
    EXPECT_EQ(bytes.at({Tier::device, "drift"}), bytes.at({Tier::device, "master"}));
  };
  run_engines(p, config_with(p), body, add_kernels);
}

TEST(AddedOptimizer, AConfigurationCanSelectIt) {
  add_rows();
  EXPECT_EQ(
      parse_config(Json::parse(R"({"optimizer": {"type": "prudent", "params": {"lr": 0.5}}})"), 1)
          .optimizer.lr,
      0.5);
  EXPECT_THROW(add_optimizer_type({"Adam", {}, {.type = "Adam"}}), Error);
  EXPECT_THROW(add_optimizer({.types = {"Other"}, .op = "adamw", .attrs = attrs}, {kType, {}, {}}),
               Error);
}

TEST(AddedOptimizer, UnsupportedRowsAreRefused) {
  auto refused = [](std::vector<StateRow> states, std::vector<StateRow> joint,
                    std::vector<std::string> parts) {
    Optimizer row{.types = {"Other"}, .op = "adamw", .states = std::move(states), .attrs = attrs};
    row.joint = std::move(joint);
    expect_names(message_of(
                     [&] {
                       add_optimizer(row, {"Other", {}, {.type = "Other"}});
                     },
                     DS_ERROR_INVALID_ARGUMENT),
                 parts);
  };
  const StateRow error = error_row("error", StateRow::Extent::whole);
  refused({error, {"late"}}, {},
          {"optimizer 'Other'", "canonical ones must come first", "'error'"});
  refused({{.name = "lost", .forgotten = StateRow::Forgotten::resized}}, {},
          {"state 'lost'", "must never be forgotten"});
  refused({}, {{"together"}}, {"joint state 'together'", "own or common"});
}

}  // namespace
}  // namespace ds::test::added_optimizer
