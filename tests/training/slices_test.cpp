// Tests parameters that are slices of larger tensors: each coordinate of an axis `tensor` trains a
// model with its own columns, while states, files and initial values are those of the whole
// tensors. The graphs do not communicate along the axis, so each coordinate trains independently.
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "compile/pipeline.h"
#include "core/program/mesh.h"
#include "engine/checkpoints.h"
#include "engine/engine.h"
#include "support/errors.h"
#include "support/models.h"
#include "support/ranks.h"
#include "support/temp_folder.h"

namespace ds::test::slices_test {
namespace {

constexpr int64_t kRows = 4, kWidth = 12, kColumns = 36, kLeaves = 6, kExperts = 6;

// Returns the slice of coordinate t of `ranks`: an equal share of dimension `dim` in three separate
// runs.
ParamSlice columns(const std::vector<int64_t>& shape, size_t dim, int t, int ranks) {
  ParamSlice slice{shape, dim, {}, {"tensor"}};
  int64_t third = shape[dim] / 3, count = third / ranks;
  for (int64_t k = 0; k < 3; ++k) slice.runs.push_back({k * third + t * count, count});
  return slice;
}

void cut(Graph& graph, ParamSlice slice) {
  if (slice.numel() != slice.whole_numel()) graph.params.back().slice = std::move(slice);
}

// Returns the graph of coordinate t: some rows of `a`, the corresponding columns of `b`, and some
// of the experts.
Graph graph_of(int t, int ranks) {
  Graph g;
  g.bound = kRows;
  auto rows = columns({kColumns, kWidth}, 0, t, ranks),
       back = columns({kWidth, kColumns}, 1, t, ranks);
  ParamSlice experts{
      {kExperts, kWidth, kWidth}, 0, {{t * (kExperts / ranks), kExperts / ranks}}, {"tensor"}};
  auto param = [&](const char* name, const ParamSlice& slice) {
    std::vector<int64_t> local = slice.local_shape();
    ValueId value = g.add_param(
        name, {DS_DTYPE_F32, Shape(std::vector<Dim>(local.begin(), local.end()))}, {"normal", 0.3});
    cut(g, slice);
    return value;
  };
  ValueId x = g.add_input("x", {DS_DTYPE_F32, {Dim::n(), kWidth}});
  ValueId target = g.add_input("target", {DS_DTYPE_F32, {Dim::n(), kWidth}});
  ValueId a = param("a", rows);
  // No op reads the experts: they are initialized and kept, and only weight decay changes them.
  param("experts", experts);
  ValueId h = g.add("linear", {x, a});
  ValueId b = param("b", back);
  g.add_output("loss", g.add("mse", {g.add("linear", {g.add("mul", {h, h}), b}), target}));
  return g;
}

struct Where {
  int tensor = 1, data = 1, stage = 0;
  Tier tier = Tier::device;
  bool tensor_first = true;
  Mesh mesh() const {
    Mesh::Axis t{"tensor", tensor}, d{kData, data};
    return tensor_first ? Mesh({t, d}) : Mesh({d, t});
  }
  std::string name() const {
    return mesh().name() + " stage " + std::to_string(stage) + " tier " +
           std::to_string(static_cast<int>(tier));
  }
};

Config config_of(const Where& w, const std::string& folder) {
  Config c = make_config(w.stage, kLeaves / w.data, w.data);
  c.reproducible = true;
  c.gradient_clipping = 0;
  c.zero.optimizer_tier = w.stage > 0 ? w.tier : Tier::device;
  c.zero.param_tier = w.stage == 3 ? w.tier : Tier::device;
  c.emulate_tiers = true;
  c.zero.nvme_path = folder;
  return c;
}

void train(Engine& engine, const Where& w, int first, int steps) {
  size_t each = kRows * kWidth, micros = static_cast<size_t>(kLeaves / w.data);
  std::vector<float> x(each * micros), target(x.size());
  int rank = engine.runtime().comm().rank();
  for (int step = first; step < first + steps; ++step) {
    for (size_t i = 0; i < x.size(); ++i) {
      auto leaf = static_cast<size_t>(w.mesh().leaf(static_cast<int64_t>(i / each), rank));
      size_t at = leaf * each + i % each;
      x[i] = static_cast<float>(at * 7 % 23) / 23.0f - 0.5f;
      target[i] = static_cast<float>((at + static_cast<size_t>(step)) * 5 % 19) / 19.0f;
    }
    auto count = static_cast<int64_t>(x.size());
    std::vector<InputView> inputs{{x.data(), DS_DTYPE_F32, count},
                                  {target.data(), DS_DTYPE_F32, count}};
    engine.train_batch(inputs);
  }
}

// Whole tensors, by parameter and kind.
using States = std::vector<std::vector<float>>;

States read_all(Engine& engine) {
  States out;
  for (ParamId p : engine.store().param_names().ids()) {
    for (const char* kind : {"param", "master", "exp_avg", "exp_avg_sq"})
      out.push_back(engine.store().read_tensor(p, kind));
  }
  return out;
}

// Broadcasts the states of rank 0 and returns them on every rank.
States of_rank_0(Communicator& comm, States states) {
  for (std::vector<float>& values : states)
    comm.broadcast(values.data(), values.size() * sizeof(float), 0, "states of rank 0");
  return states;
}

// Loads `from` unless it is empty, trains `steps` steps from step `first` on and saves to `to`
// unless it is empty. Returns the whole tensors that every rank reads.
States run(const Where& w, const std::string& from, int first, int steps, const std::string& to) {
  States out;
  TempFolder folder;
  Mesh mesh = w.mesh();
  run_ranks(mesh.ranks(), [&](Communicator& comm) {
    EngineOptions options;
    options.mesh = mesh;
    Engine engine(config_of(w, folder.path()),
                  graph_of(mesh.coordinate(comm.rank(), "tensor"), w.tensor), comm, options);
    if (!from.empty()) engine.checkpoints().load(from);
    train(engine, w, first, steps);
    if (!to.empty()) engine.checkpoints().save(to);
    States mine = read_all(engine);
    if (comm.rank() == 0) out = mine;
    EXPECT_EQ(mine, of_rank_0(comm, mine)) << w.name() << " rank " << comm.rank();
  });
  return out;
}

// The initial values of a slice are those of the whole tensor at its position.
TEST(SlicedParams, AreDrawnAsTheWholeTensor) {
  States want = run({}, "", 0, 0, "");
  for (bool first : {true, false}) {
    for (int stage : {0, 3}) {
      for (Where w :
           {Where{2, 3, stage, Tier::device, first}, Where{3, 1, stage, Tier::host, first}})
        EXPECT_EQ(run(w, "", 0, 0, ""), want) << w.name();
    }
  }
}

// Training continues with equal bits at another stage, on another tier, with the axes in another
// order, and on half the data ranks. Proves {checkpoint.load.any}.
TEST(SlicedParams, ResumeOnAnotherMeshStageAndTier) {
  TempFolder folder;
  for (auto [tensor, data] : {std::pair{2, 2}, {3, 2}, {2, 3}}) {
    std::string made = folder / (std::to_string(tensor) + "x" + std::to_string(data));
    States straight = run({tensor, data, 0, Tier::device, true}, "", 0, 5, "");
    EXPECT_NE(run({tensor, data, 3, Tier::nvme, true}, "", 0, 2, made), straight);
    std::vector<Where> others = {{tensor, data, 1, Tier::host, false},
                                 {tensor, data, 3, Tier::host, true}};
    if (data == 2) others.push_back({tensor, 1, 0, Tier::device, true});
    for (const Where& w : others) EXPECT_EQ(run(w, made, 2, 3, ""), straight) << w.name();
  }
}

// Whole tensors are unchanged after loads and saves on meshes that slice them differently.
TEST(SlicedParams, FilesHoldWholeTensors) {
  TempFolder folder;
  States want = run({2, 2, 1, Tier::host, false}, "", 0, 3, folder / "0");
  int next = 1;
  for (Where w : {Where{}, Where{3, 1, 3, Tier::nvme, true}, Where{1, 3, 2, Tier::host, true},
                  Where{2, 3, 0}}) {
    std::string from = folder / std::to_string(next - 1), to = folder / std::to_string(next);
    EXPECT_EQ(run(w, from, 3, 0, to), want) << w.name();
    ++next;
  }
}

// A wrong slice is refused before any of it is used.
TEST(SlicedParams, AWrongSliceIsRefused) {
  Where w{2, 1};
  auto refusal = [&](const std::function<void(Parameter&, Config&)>& change, ds_status status) {
    Graph graph = graph_of(0, 2);
    Config config = config_of(w, "");
    change(graph.params[0], config);
    return message_of([&] { compile_plan(graph, config, 0, w.mesh(), Machine{}); }, status);
  };
  EXPECT_EQ(refusal([](Parameter& p, Config&) { p.slice->dim = 2; }, DS_ERROR_INVALID_ARGUMENT),
            "the slice of parameter 'a' must cut one of 2 dimensions, got 2");
  EXPECT_EQ(
      refusal([](Parameter& p, Config&) { p.slice->runs.pop_back(); }, DS_ERROR_INVALID_ARGUMENT),
      "the slice of parameter 'a' has shape [12,12], but [18,12] in the graph");
  EXPECT_EQ(
      refusal(
          [](Parameter& p, Config&) {
            p.slice->shape = {INT64_MAX, 12};
          },
          DS_ERROR_INVALID_ARGUMENT),
      "parameter 'a' has an extent of 12, which is negative or makes its size exceed 64 bits");
  EXPECT_EQ(
      refusal([](Parameter& p, Config&) { p.slice->axes = {"tensr"}; }, DS_ERROR_INVALID_ARGUMENT),
      "parameter 'a' is cut over 'tensr', which is not an axis of mesh tensor:2,data:1");
  EXPECT_EQ(refusal([](Parameter&, Config& c) { c.gradient_clipping = 1; }, DS_ERROR_UNSUPPORTED),
            "parameter 'a' is cut over 'tensor', whose ranks compute separate norms: "
            "gradient_clipping must be 0, got 1");
  // Models cut for three ranks, on a mesh of two.
  run_ranks(2, [&](Communicator& comm) {
    EngineOptions options;
    options.mesh = w.mesh();
    Engine engine(config_of(w, ""), graph_of(comm.rank(), 3), comm, options);
    EXPECT_EQ(message_of([&] { engine.store().read_tensor(ParamId(0), "master"); },
                         DS_ERROR_INVALID_ARGUMENT),
              "parameter 'a' has 432 elements, but its slices have 288");
  });
}

// All ranks read what each rank writes to its own elements, whose positions local_blocks() returns.
TEST(SlicedParams, LocalElementsMapToElementsOfTheWholeTensor) {
  for (Where w :
       {Where{2, 2, 3, Tier::device, true}, Where{3, 2, 1, Tier::host, false}, Where{1, 3, 2}}) {
    TempFolder folder;
    Mesh mesh = w.mesh();
    run_ranks(mesh.ranks(), [&](Communicator& comm) {
      EngineOptions options;
      options.mesh = mesh;
      Engine engine(config_of(w, folder.path()),
                    graph_of(mesh.coordinate(comm.rank(), "tensor"), w.tensor), comm, options);
      StateStore& store = engine.store();
      for (ParamId p : store.param_names().ids()) {
        std::vector<float> mine(static_cast<size_t>(store.local_numel(p)), -1.0f), whole;
        for (const SliceBlock& block : store.local_blocks(p)) {
          for_each_run(block, block.count, [&](int64_t local, int64_t at, int64_t n) {
            for (int64_t i = 0; i < n; ++i)
              mine.at(static_cast<size_t>(local + i)) = static_cast<float>(at + i);
          });
        }
        store.write_local(p, "master", mine);
        store.refresh_params();
        whole = store.read_tensor(p, "master");
        for (size_t i = 0; i < whole.size(); ++i)
          ASSERT_EQ(whole[i], static_cast<float>(i)) << w.name() << " parameter " << p.number();
        EXPECT_EQ(store.read_tensor(p, "param"), whole) << w.name();
        for (float& x : whole) x += 0.5f;
        store.write_tensor(p, "master", whole);
        EXPECT_EQ(store.read_tensor(p, "master"), whole) << w.name();
        std::vector<float> local = store.read_local(p, "master");
        for (size_t i = 0; i < local.size(); ++i) EXPECT_EQ(local[i], mine[i] + 0.5f);
      }
    });
  }
}

}  // namespace
}  // namespace ds::test::slices_test
