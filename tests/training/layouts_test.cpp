// Checkpoints, tensors by name and edits are independent of how ranks are grouped.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "checkpoint/payload.h"
#include "core/base/error.h"
#include "support/errors.h"
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

// Loads the checkpoint `from` unless it is empty, trains three steps and saves to `to`.
Left train_three(const Point& p, const std::string& from, const std::string& to) {
  Left left;
  run_ranks(p.world, [&](Communicator& comm) {
    Engine engine(config_of(p), graph_of(p), comm, {});
    if (!from.empty()) engine.checkpoints().load(from);
    for (int s = 0; s < 3; ++s) train_step(p, engine, engine.control().steps());
    std::string path = engine.checkpoints().save(to), state = state_hash(engine.store());
    if (comm.rank() == 0) left = {path, payload_hash(path), state};
  });
  return left;
}

TEST(Layouts, AnyGroupingResumesFromAnyOther) {
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

// A value written by name changes every rank's copy.
TEST(Layouts, AnEditReachesEveryCopy) {
  for (const Point& p : layouts()) {
    run_ranks(p.world, [&](Communicator& comm) {
      Engine engine(config_of(p), graph_of(p), comm, {});
      for (size_t i = 0; i < engine.store().param_names().size(); ++i) {
        int32_t param = static_cast<int32_t>(i);
        std::vector<float> values = engine.store().read_tensor(ParamId(param), "master");
        for (size_t k = 0; k < values.size(); ++k) values[k] = static_cast<float>(k % 256) + 0.5f;
        engine.store().write_tensor(ParamId(param), "master", values);
        EXPECT_EQ(engine.store().read_tensor(ParamId(param), "master"), values)
            << engine.store().param_names()[i] << " of " << p.name();
        std::vector<float> compute = engine.store().read_tensor(ParamId(param), "param");
        for (size_t k = 0; k < values.size(); ++k)
          ASSERT_NEAR(compute[k], values[k], 0.6) << p.name();
        values[0] = -3;
        engine.store().write_tensor(ParamId(param), "exp_avg", values);
        EXPECT_EQ(engine.store().read_tensor(ParamId(param), "exp_avg"), values)
            << engine.store().param_names()[i] << " of " << p.name();
      }
    });
  }
}

// The parts that ranks hold cover every element of a tensor. After a refresh, all ranks see edits
// of the parts.
TEST(Layouts, LocalPartsFormTheWholeTensor) {
  for (const Point& p : layouts()) {
    run_ranks(p.world, [&](Communicator& comm) {
      Engine engine(config_of(p), graph_of(p), comm, {});
      train_step(p, engine, 0);
      for (const char* kind : {"master", "exp_avg_sq", "param", "grad"}) {
        for (size_t i = 0; i < engine.store().param_names().size(); ++i) {
          int32_t param = static_cast<int32_t>(i);
          std::vector<float> whole = engine.store().read_tensor(ParamId(param), kind),
                             part = engine.store().read_local(ParamId(param), kind);
          auto [first, count] = engine.store().local_range(ParamId(param));
          ASSERT_EQ(static_cast<int64_t>(part.size()), count);
          EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + first))
              << kind << " of " << p.name();
          std::vector<float> copies(whole.size(), 0.0f), sum(whole.size());
          std::fill_n(copies.begin() + first, count, 1.0f);
          comm.all_reduce(copies.data(), sum.data(), sum.size(), DS_DTYPE_F32, "copies");
          for (float c : sum) ASSERT_GE(c, 1) << "an element that no rank holds: " << p.name();
        }
      }
      for (size_t i = 0; i < engine.store().param_names().size(); ++i) {
        int32_t param = static_cast<int32_t>(i);
        auto [first, count] = engine.store().local_range(ParamId(param));
        std::vector<float> part;
        for (int64_t k = first; k < first + count; ++k) part.push_back(static_cast<float>(k % 128));
        engine.store().write_local(ParamId(param), "master", part);
      }
      // Until all parts are written and refreshed, a rank would see its own changes but not those
      // of others.
      for (const auto& call : std::vector<std::function<void()>>{
               [&] { engine.store().read_tensor(ParamId(0), "param"); },
               [&] { train_step(p, engine, 1); },
               [&] { train_step_in_pieces(p, engine, 1, [] {}); }, [&] { engine.join(); }}) {
        expect_names(message_of(call, DS_ERROR_STATE), {"ds_engine_refresh must be called"});
      }
      engine.store().refresh_params();
      for (size_t i = 0; i < engine.store().param_names().size(); ++i) {
        std::vector<float> now = engine.store().read_tensor(ParamId(i), "param");
        for (size_t k = 0; k < now.size(); ++k)
          ASSERT_EQ(now[k], static_cast<float>(k % 128)) << p.name();
      }
    });
  }
}

// The update and the clipping use an edited gradient. With states on files, such an edit is
// refused.
TEST(Layouts, AnEditedGradientIsUsed) {
  std::vector<Point> points = layouts();
  // At stage 1, states are partitioned and gradients are whole.
  points.push_back(at({.stage = 1}, 2));
  for (const Point& p : points) {
    run_ranks(p.world, [&](Communicator& comm) {
      Config c = config_of(p);
      c.gradient_clipping = 0.01;
      Engine engine(c, graph_of(p), comm, {});
      auto edit = [&](Engine& e) {
        for (size_t i = 0; i < e.store().param_names().size(); ++i) {
          int32_t param = static_cast<int32_t>(i);
          std::vector<float> grad = e.store().read_tensor(ParamId(param), "grad");
          for (float& g : grad) g *= i == 0 ? 4 : 0;
          if (i % 2 == 0) {
            e.store().write_tensor(ParamId(param), "grad", grad);
          } else {
            auto [first, count] = e.store().local_range(ParamId(param));
            e.store().write_local(ParamId(param), "grad",
                                  {grad.data() + first, static_cast<size_t>(count)});
          }
          EXPECT_EQ(e.store().read_tensor(ParamId(param), "grad"), grad) << p.name();
        }
      };
      double first_norm = 0;
      StepResult r = train_step_in_pieces(p, engine, 0, [&] {
        if (p.tier == Tier::nvme) {
          std::vector<float> grad = engine.store().read_tensor(ParamId(0), "grad");
          EXPECT_THROW(engine.store().write_tensor(ParamId(0), "grad", grad), Error);
          return;
        }
        std::vector<float> grad = engine.store().read_tensor(ParamId(0), "grad");
        for (float g : grad) first_norm += 16.0 * double(g) * double(g);
        edit(engine);
      });
      if (p.tier == Tier::nvme) return;
      EXPECT_NEAR(r.grad_norm, std::sqrt(first_norm), 1e-6 * r.grad_norm) << p.name();
      std::vector<float> moved = engine.store().read_tensor(ParamId(0), "exp_avg"),
                         still = engine.store().read_tensor(ParamId(1), "exp_avg");
      EXPECT_NE(*std::max_element(moved.begin(), moved.end()), 0);
      EXPECT_EQ(*std::max_element(still.begin(), still.end()), 0) << p.name();
      std::vector<float> grad = engine.store().read_tensor(ParamId(0), "grad");
      EXPECT_THROW(engine.store().write_tensor(ParamId(0), "grad", grad), Error)
          << "after the update";
    });
  }
}

}  // namespace
}  // namespace ds::test
