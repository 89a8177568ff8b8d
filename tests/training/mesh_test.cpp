// A new axis of the mesh and a new granule need no change in zero/ and exec/. This file adds one of
// each.
#include <gtest/gtest.h>

#include "checkpoint/folder.h"
#include "checkpoint/payload.h"
#include "compile/pipeline.h"
#include "engine/checkpoints.h"
#include "engine/delegate.h"
#include "engine/engine.h"
#include "support/initial.h"
#include "support/models.h"
#include "support/ranks.h"
#include "support/same_bits.h"
#include "support/tags.h"
#include "support/temp_folder.h"

namespace ds::test::mesh_test {
namespace {

constexpr int kSteps = 3;

Point point(int stage, Tier tier, int world) {
  Point p;
  p.stage = stage;
  p.tier = tier;
  p.world = world;
  p.leaves = 4 * world;
  return p;
}

void expect_replicas(Point p, const char* what) {
  Outcome want = train_threads(p, kSteps);
  for (Mesh mesh :
       {Mesh({{kData, p.world}, {"replica", 2}}), Mesh({{"replica", 2}, {kData, p.world}}),
        Mesh({{"replica", 3}, {kData, p.world}, {"pipe", 1}})}) {
    if (mesh.ranks() > 8) continue;
    p.mesh = mesh;
    Outcome got = train_threads(p, kSteps);
    EXPECT_EQ(got.bits(), want.bits()) << what << " " << p.name();
    // Every rank has the state and traffic of the rank with its data coordinate in a run without
    // copies.
    ASSERT_EQ(got.ledgers.size(), static_cast<size_t>(mesh.ranks()));
    for (int r = 0; r < mesh.ranks(); ++r) {
      const RankLedger &mine = got.ledgers[static_cast<size_t>(r)],
                       &plain = want.ledgers[static_cast<size_t>(mesh.coordinate(r, kData))];
      EXPECT_EQ(mine.state, plain.state);
      int64_t bytes[2] = {};
      for (const auto& [op, count] : mine.steps) bytes[0] += count.bytes;
      for (const auto& [op, count] : plain.steps) bytes[1] += count.bytes;
      EXPECT_EQ(bytes[0], bytes[1]);
    }
  }
}

// Ranks that differ only in the axis `replica` train the same batch. ZeRO partitions over `data`
// only.
TEST(MeshTraining, EqualCopiesTrainAsOne) {
  for (int stage = 0; stage <= 3; ++stage) {
    Tier tier = stage == 1 ? Tier::host : stage == 2 ? Tier::nvme : Tier::device;
    expect_replicas(point(stage, tier, 2), "plain");
  }
  Point chaos = point(3, Tier::nvme, 2);
  chaos.chaos = 5;
  expect_replicas(chaos, "chaos");
  Point levels = point(3, Tier::host, 4);
  levels.nodes = levels.mics = 2;
  expect_replicas(levels, "shard groups");
  Point codes = point(3, Tier::device, 2);
  codes.quantized_weights = true;
  codes.gradient_bits = 8;
  expect_replicas(codes, "codes");
  Point rows = point(2, Tier::device, 2);
  rows.vocab = 400;
  rows.tied = false;
  rows.sparse = true;
  expect_replicas(rows, "rows of tables");
}

// Only one of several equal copies is saved. Runs without copies or with other copies resume from
// it.
TEST(MeshTraining, EqualCopiesSaveOneCheckpoint) {
  TempFolder folder;
  auto run = [&](Point p, const std::string& from, int64_t first, int64_t steps,
                 const std::string& to) {
    std::string hash;
    run_ranks(p.mesh ? p.mesh->ranks() : p.world, [&](Communicator& comm) {
      EngineOptions options;
      options.mesh = p.mesh;
      set_device(options, p);
      Engine engine(config_of(p), graph_of(p), comm, options);
      if (!from.empty()) engine.checkpoints().load(from);
      for (int64_t s = first; s < first + steps; ++s) train_step(p, engine, s);
      if (!to.empty()) engine.checkpoints().save(to);
      std::string mine = state_hash(engine.store());
      if (comm.rank() == 0) hash = mine;
    });
    return hash;
  };
  for (int stage : {0, 1, 3}) {
    Point plain = point(stage, stage == 3 ? Tier::nvme : Tier::device, 2), copies = plain,
          three = plain;
    copies.mesh = Mesh({{"replica", 2}, {kData, 2}});
    three.mesh = Mesh({{kData, 2}, {"replica", 3}});
    std::string straight = run(plain, "", 0, 4, ""), made = folder / std::to_string(stage);
    run(copies, "", 0, 2, made);
    EXPECT_EQ(payload_hash(find_checkpoint(made)), [&] {
      run(plain, "", 0, 2, made + "-plain");
      return payload_hash(find_checkpoint(made + "-plain"));
    }());
    EXPECT_EQ(run(plain, made, 2, 2, ""), straight) << "stage " << stage;
    EXPECT_EQ(run(three, made, 2, 2, ""), straight) << "stage " << stage;
  }
}

// Equal copies of a delegate host train as one: gradients are means over the leaves of `data`, for
// any number of copies.
TEST(MeshTraining, EqualCopiesOfADelegateTrainAsOne) {
  auto train = [](int stage, std::optional<Mesh> mesh) {
    std::vector<float> out;
    run_ranks(mesh ? mesh->ranks() : 2, [&](Communicator& comm) {
      EngineOptions options;
      options.mesh = mesh;
      std::vector<float> values(700, 1.0f), grad(700);
      DelegateEngine engine(make_config(stage, 2, 2), comm, with_values({values}, options));
      ParamId p = engine.add_param("w", {7, 100});
      engine.start();
      int data = mesh ? mesh->coordinate(comm.rank(), kData) : comm.rank();
      for (int step = 0; step < 3; ++step) {
        for (int micro = 0; micro < 2; ++micro) {
          engine.gather({&p, 1});
          for (size_t i = 0; i < grad.size(); ++i)
            grad[i] =
                static_cast<float>((static_cast<int>(i) * 7 + step + 3 * micro + 5 * data) % 11) /
                16;
          engine.release({&p, 1});
          engine.grad_ready(p, {grad.data(), DS_DTYPE_F32, 700});
          engine.end_micro_step();
        }
        engine.step();
      }
      std::vector<float> mine = engine.store().read_tensor(p, "master"),
                         mean = engine.store().read_tensor(p, "grad");
      mine.insert(mine.end(), mean.begin(), mean.end());
      if (comm.rank() == 0) out = mine;
    });
    return out;
  };
  for (int stage = 0; stage <= 3; ++stage) {
    std::vector<float> want = train(stage, {});
    EXPECT_EQ(train(stage, Mesh({{"replica", 2}, {kData, 2}})), want) << stage;
    EXPECT_EQ(train(stage, Mesh({{kData, 2}, {"replica", 3}})), want) << stage;
    EXPECT_EQ(train(stage, Mesh({{kExpertData, 1}, {kExpert, 2}})), want) << stage;
  }
}

// If a granule is a row, no rank's part ends within a row. Without clipping, training has the same
// bits.
TEST(GranuleTraining, WholeRowsAreGranules) {
  for (int world : {1, 2, 3}) {
    Point plain = point(0, Tier::device, world);
    plain.clipping = 0;
    Outcome want = train_threads(plain, kSteps);
    for (int stage = 0; stage <= 3; ++stage) {
      for (Tier tier : {Tier::device, Tier::nvme}) {
        Point p = point(stage, tier, world);
        p.clipping = 0;
        p.row_granules = true;
        Outcome got = train_threads(p, kSteps);
        EXPECT_EQ(got.hash, want.hash) << p.name();
        EXPECT_EQ(got.loss_hash, want.loss_hash) << p.name();
        // The norms are added in another order.
        for (int s = 0; s < kSteps; ++s)
          EXPECT_NEAR(got.grad_norms[static_cast<size_t>(s)],
                      want.grad_norms[static_cast<size_t>(s)],
                      1e-12 * want.grad_norms[static_cast<size_t>(s)]);
      }
    }
  }
  // All parts end between rows.
  Point p = point(3, Tier::device, 3);
  PlanPrograms programs;
  programs.row_granules = true;
  Plan plan = compile_plan(graph_of(p), config_of(p), 1, 3, Machine{}, true, programs);
  int of_rows = 0;
  for (const Bucket& b : plan.zero.layout.buckets) {
    EXPECT_EQ(b.numel % (3 * b.granule), 0);
    for (const ParamPlace& place : b.params) {
      const Shape& shape = plan.graph.type(plan.graph.params[place.param].value).shape;
      EXPECT_EQ(b.granule, shape.rank() == 2 ? shape[1].extent : kGranule);
      of_rows += shape.rank() == 2;
    }
  }
  EXPECT_GT(of_rows, 5);
}

}  // namespace
}  // namespace ds::test::mesh_test
