// A checkpoint does not depend on how ranks are grouped, nor does what follows it.
#include <gtest/gtest.h>

#include "checkpoint/checkpoint.h"
#include "support/ranks.h"
#include "support/same_bits.h"
#include "support/temp_folder.h"

namespace ds::test {
namespace {

Point at(Point p, int world) {
  p.world = world;
  p.leaves = 8;
  p.reproducible = true;
  return p;
}

const std::vector<Point>& layouts() {
  static const std::vector<Point> points = {
      at({.stage = 0}, 2),
      at({.stage = 1, .tier = Tier::nvme, .nodes = 2}, 4),
      at({.stage = 2, .nodes = 4}, 8),
      at({.stage = 3, .tier = Tier::host, .nodes = 2}, 8),
      at({.stage = 3, .tier = Tier::nvme, .mics = 2}, 4),
      at({.stage = 3, .nodes = 4, .mics = 4, .gather_by_node = true}, 8),
      at({.stage = 3, .tier = Tier::host, .nodes = 2, .hpz = 2}, 8),
  };
  return points;
}

struct Left {
  std::string path, payload, state;
};

// Begins with the checkpoint `from` ("": anew), takes three steps, saves into `to`.
Left train_three(const Point& p, const std::string& from, const std::string& to) {
  Left left;
  run_ranks(p.world, [&](Communicator& comm) {
    Engine engine(config_of(p), graph_of(p), comm, {});
    if (!from.empty()) engine.load(from);
    for (int s = 0; s < 3; ++s) train_step(p, engine, engine.steps_taken());
    std::string path = engine.save(to), state = state_hash(engine);
    if (comm.rank() == 0) left = {path, payload_hash(path), state};
  });
  return left;
}

TEST(Restart, AnyGroupingFollowsAnyOther) {
  TempFolder first, second;
  Left saved = train_three(layouts()[0], "", first.path());
  Left after = train_three(layouts()[0], saved.path, second.path());
  for (size_t i = 1; i < layouts().size(); ++i) {
    TempFolder one, two;
    Left here = train_three(layouts()[i], "", one.path());
    EXPECT_EQ(here.payload, saved.payload) << layouts()[i].name();
    EXPECT_EQ(here.state, saved.state) << layouts()[i].name();
    const Point& next = layouts()[i % (layouts().size() - 1) + 1];
    Left later = train_three(next, here.path, two.path());
    EXPECT_EQ(later.payload, after.payload) << layouts()[i].name() << " -> " << next.name();
    EXPECT_EQ(later.state, after.state) << layouts()[i].name() << " -> " << next.name();
  }
}

// A value written by name reaches every rank that holds a copy.
TEST(Restart, AnEditReachesEveryCopy) {
  for (const Point& p : layouts()) {
    run_ranks(p.world, [&](Communicator& comm) {
      Engine engine(config_of(p), graph_of(p), comm, {});
      for (size_t i = 0; i < engine.param_names().size(); ++i) {
        int32_t param = static_cast<int32_t>(i);
        std::vector<float> values = engine.read_tensor(param, "master");
        for (size_t k = 0; k < values.size(); ++k) values[k] = static_cast<float>(k % 256) + 0.5f;
        engine.write_tensor(param, "master", values);
        EXPECT_EQ(engine.read_tensor(param, "master"), values)
            << engine.param_names()[i] << " of " << p.name();
        std::vector<float> compute = engine.read_tensor(param, "param");
        for (size_t k = 0; k < values.size(); ++k) ASSERT_NEAR(compute[k], values[k], 0.6) << p.name();
        values[0] = -3;
        engine.write_tensor(param, "exp_avg", values);
        EXPECT_EQ(engine.read_tensor(param, "exp_avg"), values)
            << engine.param_names()[i] << " of " << p.name();
      }
    });
  }
}

}  // namespace
}  // namespace ds::test
