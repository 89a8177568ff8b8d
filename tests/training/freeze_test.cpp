// Tests parameters that are frozen: always, for a while or from some step on.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <numeric>
#include <set>

#include "checkpoint/manifest.h"
#include "compile/named_params.h"
#include "engine/delegate.h"
#include "support/errors.h"
#include "support/initial.h"
#include "support/models.h"
#include "support/ranks.h"
#include "support/same_bits.h"
#include "support/temp_folder.h"

namespace ds::test {
namespace {

// Patterns that freeze part of a layer, a small parameter and a whole layer.
const std::vector<std::string> kPatterns = {"h.0.mlp.*", "ln_f.weight", "h.1.*"};

std::vector<int32_t> frozen_params(const Engine& engine) {
  Config c;
  c.frozen = kPatterns;
  std::vector<char> mask = frozen_by_name(c.frozen, engine.store().param_names());
  std::vector<int32_t> out;
  for (size_t p = 0; p < mask.size(); ++p) {
    if (mask[p]) out.push_back(static_cast<int32_t>(p));
  }
  return out;
}

// When the parameters of kPatterns are frozen: from the beginning by the configuration, or by calls
// before the given steps.
struct Schedule {
  bool from_config = false;
  int freeze_at = -1, thaw_at = -1;
};

std::string train(const Point& p, const Schedule& schedule, int steps) {
  std::vector<std::string> hashes(static_cast<size_t>(p.world));
  run_ranks(p.world, [&](Communicator& comm) {
    Config c = config_of(p);
    if (schedule.from_config) c.frozen = kPatterns;
    EngineOptions options;
    options.threads = p.threads;
    set_device(options, p);
    Engine engine(c, graph_of(p), comm, options);
    std::vector<int32_t> params = frozen_params(engine);
    for (int s = 0; s < steps; ++s) {
      if (s == schedule.freeze_at) engine.trained().freeze(params, true);
      if (s == schedule.thaw_at) engine.trained().freeze(params, false);
      train_step(p, engine, s);
    }
    // An empty list changes nothing.
    engine.trained().freeze(std::vector<int32_t>{}, true);
    hashes[static_cast<size_t>(comm.rank())] = hash_of_states(engine);
  });
  for (const std::string& hash : hashes) EXPECT_EQ(hash, hashes[0]);
  return hashes[0];
}

std::vector<Point> layouts(DType compute) {
  std::vector<Point> points;
  for (int stage = 0; stage <= 3; ++stage) {
    for (Tier tier : {Tier::device, Tier::host, Tier::nvme}) {
      Point p;
      p.compute = compute;
      p.stage = stage;
      p.tier = tier;
      p.threads = 1 + stage % 2;
      p.emulate = tier != Tier::device;
      if (stage % 2 == 1) p.chaos = static_cast<uint64_t>(stage);
      if (stage == 2) p.separate = 5;
      points.push_back(p);
    }
  }
  return points;
}

// Parameters that are frozen from the beginning have no states; parameters that a call freezes keep
// their states, unused. Both trainings have equal bits on every layout. The test uses f32, because
// in bf16 a parameter that is frozen from the beginning has no master.
TEST(Freeze, FreezingFromTheBeginningEqualsFreezingByCall) {
  std::vector<Point> points = layouts(DS_DTYPE_F32);
  std::string expected = train(points[0], {.freeze_at = 0}, 4);
  EXPECT_NE(expected, train(points[0], {}, 4));
  for (const Point& p : points) {
    EXPECT_EQ(train(p, {.from_config = true}, 4), expected) << p.name();
    EXPECT_EQ(train(p, {.freeze_at = 0}, 4), expected) << p.name();
  }
}

TEST(Freeze, ThawingHasEqualBitsOnEveryLayout) {
  std::string expected = train(layouts(DS_DTYPE_F32)[0], {.freeze_at = 0, .thaw_at = 2}, 5);
  for (DType compute : {DS_DTYPE_F32, DS_DTYPE_BF16}) {
    std::set<std::string> hashes;
    for (const Point& p : layouts(compute))
      hashes.insert(train(p, {.from_config = true, .thaw_at = 2}, 5));
    EXPECT_EQ(hashes.size(), 1u) << dtype_name(compute);
    EXPECT_EQ(hashes.contains(expected), compute == DS_DTYPE_F32);
  }
}

TEST(Freeze, FreezingForAWhileHasEqualBitsOnEveryLayout) {
  std::vector<Point> points = layouts(DS_DTYPE_BF16);
  std::string expected = train(points[0], {.freeze_at = 1, .thaw_at = 3}, 5);
  EXPECT_NE(expected, train(points[0], {.freeze_at = 0, .thaw_at = 3}, 5));
  for (const Point& p : points)
    EXPECT_EQ(train(p, {.freeze_at = 1, .thaw_at = 3}, 5), expected) << p.name();
  Point shard{.stage = 3, .tier = Tier::host, .world = 4, .mics = 2, .leaves = 8};
  Point plain{.world = 4, .leaves = 8};
  EXPECT_EQ(train(shard, {.freeze_at = 1, .thaw_at = 3}, 5),
            train(plain, {.freeze_at = 1, .thaw_at = 3}, 5));
}

// Frozen masters keep their bits and all others change; parameters that were never trained have no
// states. Proves {engine.freeze.states}, with ThawingHasEqualBitsOnEveryLayout.
TEST(Freeze, FrozenParametersKeepTheirStates) {
  Point p;
  p.world = 1;
  p.emulate = false;
  auto comm = create_communicator("self", {});
  Config c = config_of(p);
  Engine all(c, graph_of(p), *comm, {});
  c.frozen = kPatterns;
  Engine engine(c, graph_of(p), *comm, {});
  std::vector<int32_t> frozen = frozen_params(engine);
  ASSERT_FALSE(frozen.empty());
  std::vector<std::vector<float>> before;
  for (size_t i = 0; i < engine.store().param_names().size(); ++i)
    before.push_back(engine.store().read_tensor(ParamId(i), "master"));
  for (int s = 0; s < 3; ++s) train_step(p, engine, s);
  for (size_t i = 0; i < before.size(); ++i) {
    bool stays = std::find(frozen.begin(), frozen.end(), static_cast<int32_t>(i)) != frozen.end();
    EXPECT_EQ(engine.store().read_tensor(ParamId(i), "master") == before[i], stays)
        << engine.store().param_names()[i];
  }
  auto bytes = [](const auto& e, const std::string& kind) {
    return e.store().state_bytes().at({Tier::device, kind});
  };
  int64_t elements = 0;
  for (int32_t i : frozen) elements += static_cast<int64_t>(before[static_cast<size_t>(i)].size());
  EXPECT_LE(bytes(engine, "exp_avg"), bytes(all, "exp_avg") - 4 * elements);
  EXPECT_LE(bytes(engine, "grad"), bytes(all, "grad") - 4 * elements);
  EXPECT_EQ(bytes(engine, "param"), bytes(all, "param"));
  engine.trained().freeze(frozen, false);
  EXPECT_EQ(bytes(engine, "exp_avg"), bytes(all, "exp_avg"));
}

TEST(Freeze, ACheckpointHasEveryParameter) {
  TempFolder folder;
  Point p;
  run_ranks(p.world, [&](Communicator& comm) {
    Config c = config_of(p);
    Engine all(c, graph_of(p), comm, {});
    for (int s = 0; s < 2; ++s) train_step(p, all, s);
    std::string path = all.checkpoints().save(folder.path());
    c.frozen = kPatterns;
    Engine some(c, graph_of(p), comm, {});
    some.checkpoints().load(path);
    for (int s = 2; s < 4; ++s) train_step(p, some, s);
    std::string later = some.checkpoints().save(folder.path());
    Engine again(c, graph_of(p), comm, {});
    again.checkpoints().load(later);
    EXPECT_EQ(again.store().read_tensor(ParamId(0), "master"),
              some.store().read_tensor(ParamId(0), "master"));
    int32_t fixed = frozen_params(some)[0];
    EXPECT_EQ(
        again.store().read_tensor(ParamId(fixed), "exp_avg"),
        std::vector<float>(again.store().read_tensor(ParamId(fixed), "exp_avg").size(), 0.0f));
    all.checkpoints().load(later);
    EXPECT_EQ(all.store().read_tensor(ParamId(fixed), "param"),
              some.store().read_tensor(ParamId(fixed), "param"));
  });
}

// A run that resumes from its checkpoint equals an unbroken one, even if calls had frozen or thawed
// parameters. An engine whose own calls or configuration differ from the checkpoint keeps its own
// setting.
TEST(Freeze, ACheckpointKeepsTheFrozenSetOfCalls) {
  for (bool from_config : {false, true}) {
    for (int stage : {0, 3}) {
      Point p{.stage = stage, .tier = stage == 0 ? Tier::device : Tier::nvme};
      TempFolder folder;
      run_ranks(p.world, [&](Communicator& comm) {
        Config c = config_of(p);
        if (from_config) c.frozen = kPatterns;
        Engine run(c, graph_of(p), comm, {}), resumed(c, graph_of(p), comm, {}),
            own(c, graph_of(p), comm, {});
        std::vector<int32_t> params = frozen_params(run);
        train_step(p, run, 0);
        std::string first = run.checkpoints().save(folder.path());
        run.trained().freeze({params.data(), 1}, !from_config);
        train_step(p, run, 1);
        std::string path = run.checkpoints().save(folder.path());
        train_step(p, run, 2);
        EXPECT_EQ(resumed.checkpoints().load(path).step, 2);
        EXPECT_EQ(resumed.trained().is_frozen(ParamId(params[0])), !from_config);
        EXPECT_EQ(resumed.checkpoints().load(first).step, 1);
        EXPECT_EQ(resumed.trained().is_frozen(ParamId(params[0])), from_config)
            << "a load is not a call of this program";
        // This loads the newest checkpoint.
        resumed.checkpoints().load(folder.path());
        EXPECT_EQ(resumed.trained().is_frozen(ParamId(params[0])), !from_config);
        train_step(p, resumed, 2);
        EXPECT_EQ(hash_of_states(resumed), hash_of_states(run)) << p.name();
        own.trained().freeze({params.data() + 1, 1}, !from_config);
        own.checkpoints().load(path);
        EXPECT_EQ(own.trained().is_frozen(ParamId(params[0])), from_config);
        EXPECT_EQ(own.trained().is_frozen(ParamId(params[1])), !from_config);
        c.frozen = {"ln_f.*"};
        Engine other(c, graph_of(p), comm, {});
        other.checkpoints().load(path);
        EXPECT_FALSE(other.trained().is_frozen(ParamId(params[0])));
      });
    }
  }
}

// torch.optim.AdamW for one parameter, in double. `updates` counts the parameter's own updates.
struct OwnAdamW {
  std::vector<double> p, m, v;
  double updates = 0;

  void update(const std::vector<float>& grad, const OptimizerConfig& o) {
    ++updates;
    double c1 = 1 - std::pow(o.beta1, updates), c2 = 1 - std::pow(o.beta2, updates);
    for (size_t e = 0; e < p.size(); ++e) {
      double g = grad[e];
      m[e] = o.beta1 * m[e] + (1 - o.beta1) * g;
      v[e] = o.beta2 * v[e] + (1 - o.beta2) * g * g;
      p[e] -= o.lr * (o.weight_decay * p[e] + m[e] / c1 / (std::sqrt(v[e] / c2) + o.eps));
    }
  }
};

// The model has three parts: one is frozen from the beginning and trained late, one is frozen for a
// while, one is always trained. Proves {engine.freeze.states}.
TEST(Freeze, BiasCorrectionCountsOwnUpdates) {
  for (const Point& from : layouts(DS_DTYPE_F32)) {
    if (from.stage == 1 || (from.stage == 3) != (from.tier == Tier::nvme)) continue;
    Point p = from;
    p.clipping = 0;
    run_ranks(p.world, [&](Communicator& comm) {
      Config c = config_of(p);
      c.frozen = kPatterns;
      EngineOptions options;
      set_device(options, p);
      Engine engine(c, graph_of(p), comm, options);
      std::vector<int32_t> late = frozen_params(engine), pausing = {0, 5};
      std::vector<OwnAdamW> want;
      for (int32_t i = 0; i < static_cast<int32_t>(engine.store().param_names().size()); ++i) {
        std::vector<float> start = engine.store().read_tensor(ParamId(i), "master");
        std::vector<double> zeros(start.size());
        want.push_back({{start.begin(), start.end()}, zeros, zeros});
      }
      for (int s = 0; s < 12; ++s) {
        if (s == 3) engine.trained().freeze(pausing, true);
        if (s == 5) engine.trained().freeze(pausing, false);
        if (s == 8) engine.trained().freeze(late, false);
        train_step(p, engine, s);
        for (size_t i = 0; i < want.size(); ++i) {
          auto param = static_cast<int32_t>(i);
          if (!engine.trained().is_frozen(ParamId(param)))
            want[i].update(engine.store().read_tensor(ParamId(param), "grad"), c.optimizer);
        }
      }
      double off = 0;
      for (size_t i = 0; i < want.size(); ++i) {
        std::vector<float> got = engine.store().read_tensor(ParamId(i), "master");
        for (size_t e = 0; e < got.size(); ++e)
          off = std::max(off, std::abs(got[e] - want[i].p[e]));
      }
      EXPECT_LT(off, 1e-3 * c.optimizer.lr) << p.name();
    });
  }
}

// A checkpoint includes the number of updates of each parameter whose number differs from the
// run's, even for another layout. If it lacks them, as those of older versions do, every parameter
// gets the run's number of updates.
TEST(Freeze, ACheckpointHasTheCountsOfOwnUpdates) {
  TempFolder folder;
  Point p{.compute = DS_DTYPE_F32}, other{.stage = 3, .tier = Tier::host, .compute = DS_DTYPE_F32};
  run_ranks(p.world, [&](Communicator& comm) {
    Config c = config_of(p), d = config_of(other);
    c.frozen = d.frozen = kPatterns;
    Engine run(c, graph_of(p), comm, {}), resumed(d, graph_of(other), comm, {}),
        later(d, graph_of(other), comm, {}), unaware(c, graph_of(p), comm, {});
    std::vector<int32_t> params = frozen_params(run);
    for (int s = 0; s < 4; ++s) train_step(p, run, s);
    std::string frozen = run.checkpoints().save(folder.path());
    run.trained().freeze(params, false);
    train_step(p, run, 4);
    std::string thawed = run.checkpoints().save(folder.path());
    for (int s = 5; s < 7; ++s) train_step(p, run, s);
    later.checkpoints().load(frozen);
    later.trained().freeze(params, false);
    for (int s = 4; s < 7; ++s) train_step(other, later, s);
    EXPECT_EQ(hash_of_states(later), hash_of_states(run));
    resumed.checkpoints().load(thawed);
    for (int s = 5; s < 7; ++s) train_step(other, resumed, s);
    EXPECT_EQ(hash_of_states(resumed), hash_of_states(run));
    comm.barrier("loaded");
    if (comm.rank() == 0) {
      Manifest manifest = read_manifest(thawed);
      EXPECT_EQ(manifest.info.updates.size(), params.size());
      for (const auto& [name, updates] : manifest.info.updates) EXPECT_EQ(updates, 1) << name;
      manifest.info.updates.clear();
      std::ofstream(thawed + "/manifest.json") << manifest.print();
    }
    comm.barrier("as an older version wrote it");
    unaware.checkpoints().load(thawed);
    for (int s = 5; s < 7; ++s) train_step(p, unaware, s);
    EXPECT_NE(hash_of_states(unaware), hash_of_states(run));
    // A second load replaces the numbers of the first one.
    unaware.checkpoints().load(frozen);
    unaware.trained().freeze(params, false);
    for (int s = 4; s < 7; ++s) train_step(p, unaware, s);
    EXPECT_EQ(hash_of_states(unaware), hash_of_states(run));
  });
}

// The states of a frozen parameter depend on its own history and not on its neighbours in the
// bucket: both the states that it had when it was frozen again, and the precision of a written
// master that was never trained.
TEST(Freeze, StatesAreKeptByParameterNotByBucket) {
  for (DType compute : {DS_DTYPE_F32, DS_DTYPE_BF16}) {
    TempFolder folder;
    std::set<std::string> hashes;
    std::string path;
    for (int64_t size : {500000000, 2000, 300}) {
      for (int stage : {0, 3}) {
        const Point p{.stage = stage, .compute = compute, .bucket_size = size};
        run_ranks(p.world, [&](Communicator& comm) {
          Config c = config_of(p);
          c.frozen = kPatterns;
          Engine run(c, graph_of(p), comm, {});
          const std::vector<int32_t> params = frozen_params(run);
          const ParamId once(params[0]), later(params[5]), written(params[3]);
          run.trained().freeze(std::vector<int32_t>{params[0], params[5]}, false);
          for (int s = 0; s < 2; ++s) train_step(p, run, s);
          run.trained().freeze(std::vector<int32_t>{params[0]}, true);
          std::vector<float> values = run.store().read_tensor(written, "master");
          for (size_t i = 0; i < values.size(); ++i)
            values[i] = 0.1f + 1e-4f * static_cast<float>(i);
          run.store().write_tensor(written, "master", values);
          EXPECT_EQ(run.store().read_tensor(written, "master") == values, compute == DS_DTYPE_F32)
              << p.name();
          expect_names(message_of([&] { run.store().write_tensor(written, "exp_avg", values); },
                                  DS_ERROR_STATE),
                       {"was never trained: it has no exp_avg"});
          if (path.empty()) {
            const std::string saved = run.checkpoints().save(folder.path());
            comm.barrier("saved");
            if (comm.rank() == 0) path = saved;
            comm.barrier("known");
          }
          const std::vector<float> moment = run.store().read_tensor(once, "exp_avg");
          auto go_on = [&](Engine& engine) {
            EXPECT_TRUE(engine.trained().is_frozen(once) && !engine.trained().is_frozen(later));
            EXPECT_EQ(engine.store().read_tensor(once, "exp_avg"), moment) << p.name();
            engine.trained().freeze(params, false);
            for (int s = 2; s < 4; ++s) train_step(p, engine, s);
            const std::string hash = hash_of_states(engine);
            if (comm.rank() == 0) hashes.insert(hash);
          };
          go_on(run);
          Engine resumed(c, graph_of(p), comm, {});
          resumed.checkpoints().load(path);
          go_on(resumed);
        });
      }
    }
    EXPECT_EQ(hashes.size(), 1u) << dtype_name(compute);
  }
}

// 0/1 Adam recomputes parameters from masters, so a thawed parameter needs its master first.
// Proves {engine.freeze.variance}: a variance of 0 would allow steps of any size.
TEST(Freeze, ParametersThawUnderZeroOneAdam) {
  for (int64_t size : {500000000, 300}) {
    Point p{.optimizer = "ZeroOneAdam", .bucket_size = size};
    run_ranks(p.world, [&](Communicator& comm) {
      Config c = config_of(p);
      c.frozen = kPatterns;
      Engine engine(c, graph_of(p), comm, {});
      const std::vector<int32_t> params = frozen_params(engine);
      train_step(p, engine, 0);
      expect_names(message_of([&] { engine.trained().freeze(params, false); }, DS_ERROR_STATE),
                   {"has had no update, and ZeroOneAdam keeps the variance", "number 2"});
      train_step(p, engine, 1);
      std::vector<std::vector<float>> before;
      for (int32_t i : params) before.push_back(engine.store().read_tensor(ParamId(i), "param"));
      engine.trained().freeze(params, false);
      for (size_t i = 0; i < params.size(); ++i)
        EXPECT_EQ(engine.store().read_tensor(ParamId(params[i]), "param"), before[i]) << p.name();
    });
  }
}

TEST(Freeze, ARefusedLoadFreezesNothing) {
  Point p{.stage = 2};
  TempFolder folder;
  run_ranks(p.world, [&](Communicator& comm) {
    Engine run(config_of(p), graph_of(p), comm, {}), resumed(config_of(p), graph_of(p), comm, {});
    std::vector<int32_t> params = frozen_params(run);
    run.trained().freeze(params, true);
    std::string path = run.checkpoints().save(folder.path());
    comm.barrier("saved");
    if (comm.rank() == 0) {
      std::fstream file(path + "/exp_avg.safetensors",
                        std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(-1, std::ios::end);
      file.put('x');
    }
    comm.barrier("damaged");
    message_of([&] { resumed.checkpoints().load(path); }, DS_ERROR_CORRUPT);
    EXPECT_FALSE(resumed.trained().is_frozen(ParamId(params[0])));
    message_of([&] { resumed.checkpoints().load(folder / "none"); }, DS_ERROR_NOT_FOUND);
    train_step(p, resumed, 0);
  });
}

TEST(Freeze, ALoadWarnsOfDroppedStates) {
  TempFolder folder;
  Point p{.world = 1};
  auto comm = create_communicator("self", {});
  Config c = config_of(p);
  Engine all(c, graph_of(p), *comm, {});
  train_step(p, all, 0);
  std::string path = all.checkpoints().save(folder.path());
  c.frozen = kPatterns;
  Engine some(c, graph_of(p), *comm, {}), again(c, graph_of(p), *comm, {});
  testing::internal::CaptureStderr();
  some.checkpoints().load(path);
  expect_names(testing::internal::GetCapturedStderr(),
               {"'" + all.store().param_names()[static_cast<size_t>(frozen_params(some)[0])] +
                    "' is trained there, frozen here",
                "this engine's setting applies", "they are dropped, masters are rounded"});
  path = some.checkpoints().save(folder.path());
  testing::internal::CaptureStderr();
  again.checkpoints().load(path);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(Freeze, ThawingOneByOneNeedsNoMoreMemory) {
  auto comm = create_communicator("self", {});
  Point p{.world = 1, .bucket_size = 600};
  Config c = config_of(p);
  c.frozen = {"h.*"};
  Engine one(c, graph_of(p), *comm, {}), all(c, graph_of(p), *comm, {});
  std::vector<int32_t> params;
  for (size_t i = 0; i < one.store().param_names().size(); ++i) {
    if (one.trained().is_frozen(ParamId(i))) params.push_back(static_cast<int32_t>(i));
  }
  ASSERT_GT(params.size(), 10u);
  int64_t before = one.runtime().mapped(Tier::device);
  all.trained().freeze(params, false);
  for (int32_t i : params) one.trained().freeze({&i, 1}, false);
  EXPECT_GT(all.runtime().mapped(Tier::device), before);
  EXPECT_EQ(one.runtime().mapped(Tier::device), all.runtime().mapped(Tier::device));
  train_step(p, one, 0);
  train_step(p, all, 0);
  EXPECT_EQ(state_hash(one.store()), state_hash(all.store()));
}

// Found by a random host: no gradient is left whose norm could be computed, but the step before had
// some.
TEST(Freeze, FreezingAllButAnEmptyParameterLeavesANormOfZero) {
  auto comm = create_communicator("self", {});
  Config c = make_config(1, 1, 1);
  const std::vector<float> values(300, 1.0f), grad(300, 2.0f);
  DelegateEngine engine(c, *comm, with_values({values}));
  engine.add_param("w", {300});
  engine.add_param("empty", {0});
  engine.start();
  engine.grad_ready(ParamId(0), {grad.data(), DS_DTYPE_F32, 300});
  engine.end_micro_step();
  EXPECT_GT(engine.step().grad_norm, 1);
  const std::vector<int32_t> all{0};
  engine.trained().freeze(all, 1);
  engine.end_micro_step();
  EXPECT_EQ(engine.step().grad_norm, 0);
}

TEST(Freeze, ImpossibleSettingsAreRefused) {
  auto comm = create_communicator("self", {});
  Point p;
  p.world = 1;
  Config c = config_of(p);
  c.frozen = {"h.0.mlp.fc.wieght"};
  expect_names(message_of([&] { Engine(c, graph_of(p), *comm, {}); }, DS_ERROR_CONFIG),
               {"frozen_parameters", "wieght", "h.0.mlp.fc.weight"});
  c.frozen = {"*"};
  expect_names(message_of([&] { Engine(c, graph_of(p), *comm, {}); }, DS_ERROR_CONFIG),
               {"frozen_parameters", "all"});
  c.frozen.clear();
  Engine engine(c, graph_of(p), *comm, {});
  std::vector<int32_t> every(engine.store().param_names().size());
  std::iota(every.begin(), every.end(), 0);
  expect_names(message_of([&] { engine.trained().freeze(every, true); }, DS_ERROR_CONFIG), {"all"});
  int32_t wrong[] = {99};
  message_of([&] { engine.trained().freeze(wrong, true); }, DS_ERROR_INVALID_ARGUMENT);
  // The engine is still usable.
  train_step(p, engine, 0);
  int32_t one[] = {3};
  engine.trained().freeze(one, true);
  expect_names(message_of([&] { engine.store().read_tensor(ParamId(3), "grad"); }, DS_ERROR_STATE),
               {"frozen", engine.store().param_names()[3]});
}

// If one rank's request is invalid or differs from the others, all ranks refuse it before anything
// changes.
TEST(Freeze, RanksThatDoNotAgreeAreRefused) {
  for (int stage : {0, 3}) {
    Point p{.stage = stage};
    std::string untouched = train(p, {}, 2);
    std::string hashes[2];
    run_ranks(2, [&](Communicator& comm) {
      Engine engine(config_of(p), graph_of(p), comm, {});
      train_step(p, engine, 0);
      int32_t own[] = {comm.rank() + 3}, wrong[] = {comm.rank() == 0 ? 3 : 99};
      expect_names(
          message_of([&] { engine.trained().freeze(own, true); }, DS_ERROR_INVALID_ARGUMENT),
          {"ds_engine_freeze", "'" + engine.store().param_names()[3] + "'", "frozen on rank 0",
           "trained on rank 1"});
      expect_names(
          message_of([&] { engine.trained().freeze(wrong, true); }, DS_ERROR_INVALID_ARGUMENT),
          {"rank 1: param must be 0 to", "got 99"});
      expect_names(message_of(
                       [&] {
                         engine.trained().freeze({own, 1}, comm.rank() == 1 ? 2 : 1);
                       },
                       DS_ERROR_INVALID_ARGUMENT),
                   {"rank 1: frozen must be 0 or 1, got 2"});
      train_step(p, engine, 1);
      hashes[comm.rank()] = hash_of_states(engine);
    });
    EXPECT_EQ(hashes[0], untouched);
    EXPECT_EQ(hashes[1], untouched);
  }
}

// Each change of the frozen set compiles a new program; the memory of the old ones is released.
TEST(Freeze, RepeatedFreezingLeaksNoMemory) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "a sanitizer's malloc is not counted";
#endif
  auto comm = create_communicator("self", {});
  Point p;
  p.world = 1;
  Engine engine(config_of(p), graph_of(p), *comm, {});
  std::vector<int32_t> params = frozen_params(engine);
  auto cycle = [&] {
    engine.trained().freeze(params, true);
    engine.trained().freeze(params, false);
    return engine.runtime().overhead().total();
  };
  cycle();
  int64_t early = cycle(), late = 0, most = engine.runtime().overhead().bytes("programs");
  EXPECT_GT(most, 0);
  for (int i = 0; i < 20; ++i) late = cycle();
  EXPECT_LT(late - early, most) << "a single one of forty plans";
}

}  // namespace
}  // namespace ds::test
