// A new device needs only one folder, such as this one.
#include "counting_device.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "engine/delegate.h"
#include "engine/engine.h"
#include "support/errors.h"
#include "support/initial.h"
#include "support/models.h"
#include "support/ranks.h"
#include "support/same_bits.h"

namespace ds::test {
namespace {

EngineOptions counting(Counts& counts) {
  EngineOptions options;
  options.kernel_filter = add_counting_kernels;
  options.device = [&counts] { return std::make_unique<CountingDevice>(counts); };
  return options;
}

std::string train(const Point& p, const EngineOptions& options) {
  constexpr int kSteps = 3;
  std::vector<std::string> hashes(static_cast<size_t>(p.world));
  run_ranks(p.world, [&](Communicator& comm) {
    Config config = config_of(p);
    // The configuration cannot name this device.
    if (options.device) config.emulate_tiers = true;
    Engine engine(config, graph_of(p), comm, options);
    std::string losses;
    for (int step = 0; step < kSteps; ++step)
      losses += std::to_string(train_step(p, engine, step).loss) + " ";
    hashes[static_cast<size_t>(comm.rank())] = losses + state_hash(engine.store());
  });
  return hashes[0];
}

TEST(CountingDevice, TrainsToTheBitsOfTheHost) {
  for (int stage = 0; stage <= 3; ++stage) {
    for (Tier tier : {Tier::device, Tier::host, Tier::nvme}) {
      Point p;
      p.stage = stage;
      p.tier = tier;
      Counts counts;
      EXPECT_EQ(train(p, counting(counts)), train(p, {})) << p.name();
      EXPECT_GE(counts.arenas, 2 * 4) << "of two ranks: by tier, persistent and transient";
      EXPECT_GT(counts.launches, 100);
      EXPECT_GT(counts.tasks, 2) << "collectives";
      EXPECT_GT(counts.records, 10);
      EXPECT_GT(counts.waits, 10);
      EXPECT_GT(counts.copies, 0);
    }
  }
}

TEST(CountingDevice, NamesAnOperationWithoutAKernel) {
  Counts counts;
  EngineOptions options = counting(counts);
  options.kernel_filter = nullptr;
  std::string error = message_of([&] { train(Point{}, options); }, DS_ERROR_UNSUPPORTED);
  EXPECT_NE(error.find("no kernel runs '"), std::string::npos) << error;
}

// A kernel whose launches must run in order and whose error must end every queue.
class Doubling final : public Kernel {
 public:
  void run(const LaunchArgs& args) const override {
    if (args.leaf == 13) raise(DS_ERROR_INTERNAL, "leaf 13");
    for (int64_t i = 0; i < args.in[0].numel(); ++i)
      args.out[0].as<float>()[i] = 2 * args.in[0].as<float>()[i];
  }
};

TEST(CountingDevice, KernelsRunInOrderAndFailTogether) {
  Counts counts;
  CountingDevice device(counts);
  std::shared_ptr<Arena> arena = device.make_arena(Device::Place::device, 64);
  std::unique_ptr<DeviceQueue> queue = device.make_queue("a"), other = device.make_queue("b");
  TensorView view{arena->address(), DS_DTYPE_F32, 1, {4, 1, 1, 1}};
  const Doubling doubling;
  const StepScalars scalars;
  std::array<float, 4> values{1, 2, 3, 4};
  queue->copy(view.data, values.data(), sizeof values);
  std::unique_ptr<Event> copied = queue->make_event();
  queue->record(*copied);
  other->wait(*copied);
  for (int i = 0; i < 3; ++i) other->launch(doubling, {{&view, 1}, {&view, 1}, &scalars, 0, 0});
  other->finish();
  device.copy(values.data(), view.data, sizeof values);
  EXPECT_EQ(values, (std::array<float, 4>{8, 16, 24, 32}));
  other->launch(doubling, {{&view, 1}, {&view, 1}, &scalars, 13, 0});
  other->finish();
  EXPECT_EQ(message_of([&] { queue->fill(view.data, 0, 4); }, DS_ERROR_INTERNAL), "leaf 13");
}

// A delegate host reads copies of the parameters that it leases.
TEST(CountingDevice, ServesADelegateHost) {
  Counts counts;
  auto self = create_communicator("self", {});
  std::vector<float> ones(64, 1.0f);
  Config config = make_config(3, 1, 1);
  config.emulate_tiers = true;
  DelegateEngine engine(config, *self, with_values({ones}, counting(counts)));
  const ParamId p = engine.add_param("w", {8, 8});
  engine.start();
  for (int step = 0; step < 3; ++step) {
    engine.gather({&p, 1});
    float seen = engine.view(p).view.as<float>()[63];
    EXPECT_EQ(seen == 1, step == 0);
    std::shared_ptr<void> kept = engine.view(p).owner;
    engine.release({&p, 1});
    engine.grad_ready(p, {ones.data(), DS_DTYPE_F32, 64});
    engine.end_micro_step();
    EXPECT_FALSE(engine.step().skipped);
    EXPECT_EQ(engine.recorded(), true);
  }
}

}  // namespace
}  // namespace ds::test
