// Tests matrix products with more than one tile, run by several ranks of one process.
#include <gtest/gtest.h>

#include <thread>

#include "kernels/cpu/linear_few.h"
#include "kernels/onednn/linear.h"
#include "kernels/onednn/openmp.h"
#include "support/conformance.h"

namespace ds::test {
namespace {

std::vector<OpCase> tiled_cases() {
  auto real = [seed = uint64_t{0}](std::vector<int64_t> dims) mutable {
    return random_tensor(DS_DTYPE_F64, std::move(dims), ++seed);
  };
  std::vector<OpCase> cases;
  cases.push_back({"linear", {}, {real({515, 40}), real({72, 40}), real({72})}});
  cases.push_back({"linear", {}, {real({3, 40}), real({3107, 40})}});
  cases.push_back({"linear_dx", {}, {real({515, 24}), real({24, 70})}});
  cases.push_back({"linear_dw", {}, {real({90, 1153}), real({90, 33})}});
  const Attrs transposed{{"transposed", int64_t{1}}};
  cases.push_back({"linear", transposed, {real({515, 40}), real({40, 72}), real({72})}});
  cases.push_back({"linear", transposed, {real({3, 40}), real({40, 3107})}});
  cases.push_back({"linear", transposed, {real({3, 40}), real({40, 4131}), real({4131})}});
  cases.push_back({"linear_dx", transposed, {real({515, 24}), real({70, 24})}});
  cases.push_back({"linear_dw", transposed, {real({90, 33}), real({90, 1153})}});
  return cases;
}

void for_each_run(const std::function<void(const KernelImpl&, const OpCase&, DType)>& f) {
  const KernelRegistry registry = built_in_kernels();
  for (const OpCase& c : tiled_cases()) {
    for (const KernelImpl& impl : registry.all()) {
      if (impl.op != c.op || impl.name == "ref") continue;
      for (DType dtype : {DS_DTYPE_F32, DS_DTYPE_BF16, DS_DTYPE_F16}) {
        if (refusal(impl, c, dtype).empty()) f(impl, c, dtype);
      }
    }
  }
}

TEST(Linear, TilesCoverTheProduct) {
  ThreadTeam team(2);
  for_each_run([&](const KernelImpl& impl, const OpCase& c, DType dtype) {
    Deviation d = deviation(impl, c, dtype, team);
    EXPECT_LT(d.error, kMostUnits)
        << impl.name << " " << c.label() << " " << dtype_name(dtype) << " " << d.where;
  });
}

TEST(Linear, BitsDoNotDependOnTheTeam) {
  ThreadTeam one(1), two(2), three(3);
  for_each_run([&](const KernelImpl& impl, const OpCase& c, DType dtype) {
    std::vector<Tensor> want = run_case(impl, c, dtype, one);
    EXPECT_TRUE(run_case(impl, c, dtype, two) == want) << impl.name << " " << c.label();
    EXPECT_TRUE(run_case(impl, c, dtype, three) == want) << impl.name << " " << c.label();
  });
}

TEST(Linear, ALargeScratchpadNeedsNoTeamScratch) {
  ThreadTeam tiny(2, 256), normal(1);
  for_each_run([&](const KernelImpl& impl, const OpCase& c, DType dtype) {
    // Products with so few rows use no primitive.
    bool few = c.op == "linear" && c.in[0].dims()[0] <= cpu::kFewRows;
    if (impl.name != "onednn" || few) return;
    EXPECT_TRUE(run_case(impl, c, dtype, tiny) == run_case(impl, c, dtype, normal))
        << impl.name << " " << c.label();
  });
}

TEST(Linear, FewRowsPrepareNoPrimitive) {
  KernelRegistry registry;
  register_onednn(registry);
  ThreadTeam team(1);
  TensorView x{nullptr, DS_DTYPE_F32, 2, {4, 11}}, w{nullptr, DS_DTYPE_F32, 2, {9973, 11}},
      y{nullptr, DS_DTYPE_F32, 2, {4, 9973}};
  std::vector<TensorView> in{x, w}, out{y};
  auto prepared = [&] {
    return implementation(registry, "linear", "onednn").prepare({in, out, {}, {}, 0, team});
  };
  int64_t before = onednn::cached_primitives();
  EXPECT_EQ(prepared(), 0);
  EXPECT_EQ(onednn::cached_primitives(), before);
  in[0].dims[0] = out[0].dims[0] = 5;
  prepared();
  EXPECT_GT(onednn::cached_primitives(), before);
}

TEST(Linear, RanksOfOneProcessShareThePrimitives) {
  KernelRegistry registry;
  register_onednn(registry);
  const std::vector<OpCase> cases = tiled_cases();
  ThreadTeam single(1);
  std::vector<std::vector<Tensor>> want;
  for (const OpCase& c : cases) {
    want.push_back(run_case(implementation(registry, c.op, "onednn"), c, DS_DTYPE_F32, single));
  }
  std::vector<std::thread> ranks;
  std::atomic<int> wrong{0};
  for (int r = 0; r < 4; ++r) {
    ranks.emplace_back([&] {
      ThreadTeam team(2);
      for (size_t i = 0; i < cases.size(); ++i) {
        const KernelImpl& impl = implementation(registry, cases[i].op, "onednn");
        if (run_case(impl, cases[i], DS_DTYPE_F32, team) != want[i]) ++wrong;
      }
    });
  }
  for (std::thread& r : ranks) r.join();
  EXPECT_EQ(wrong.load(), 0);
}

TEST(Linear, CacheOfPrimitivesIsLimited) {
  KernelRegistry registry;
  register_onednn(registry);
  const KernelImpl& impl = implementation(registry, "linear", "onednn");
  ThreadTeam team(1);
  for (int64_t n = 1; n <= 600; ++n) {
    OpCase c{"linear", {}, {Tensor(DS_DTYPE_F64, {n % 63 + 1, n}), Tensor(DS_DTYPE_F64, {1, n})}};
    run_case(impl, c, DS_DTYPE_F32, team);
  }
  EXPECT_GT(onednn::cached_primitives(), 100);
  EXPECT_LE(onednn::cached_primitives(), 512);
}

TEST(Linear, TheCallersOpenmpThreadsAreUnchanged) {
  KernelRegistry registry;
  register_onednn(registry);
  ThreadTeam team(1);
  int before = omp_get_max_threads();
  omp_set_num_threads(3);
  OpCase c = tiled_cases()[0];
  run_case(implementation(registry, "linear", "onednn"), c, DS_DTYPE_F32, team);
  EXPECT_EQ(omp_get_max_threads(), 3);
  omp_set_num_threads(before);
}

TEST(LinearTile, KeepsTwoThreadsBusyAndCoversTheMainJob) {
  struct Row {
    int64_t m, n;
    bool transpose_a;
    int64_t tasks;
  };
  for (const Row& r : {Row{1024, 1152, false, 4}, Row{1024, 384, false, 4}, Row{1152, 384, true, 4},
                       Row{384, 384, true, 4}, Row{1536, 384, true, 4}, Row{256, 384, true, 2},
                       Row{2048, 50257, false, 8 * 33}, Row{1, 4096, false, 4}}) {
    onednn::Tile tile = onednn::tile_for(r.m, r.n, r.transpose_a);
    int64_t tasks = ((r.m + tile.rows - 1) / tile.rows) * ((r.n + tile.columns - 1) / tile.columns);
    EXPECT_EQ(tasks, r.tasks) << r.m << " x " << r.n;
  }
}

}  // namespace
}  // namespace ds::test
