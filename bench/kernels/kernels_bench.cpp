// Measures the optimized kernels, except those that missing() names, at the shapes of two training
// steps (jobs.h), on one thread. Counters: flops and bytes a second, and of_limit, the share of
// what this thread can reach at all (diagnostics/peak.h). Above 1 an operand was in a cache.
//
// `bench_kernels documents` measures attention, forward and backward, on a row of 2048 tokens as
// one document and as 8 of 256, alternately. It fails if the latter takes more than 0.3 of the
// former's time; by the number of products it would be 0.125.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/random.h"
#include "core/program/cost.h"
#include "diagnostics/peak.h"
#include "jobs.h"
#include "kernels/kernel.h"

namespace ds::bench {
namespace {

struct FreeDeleter {
  void operator()(void* p) const { std::free(p); }
};

// Operands are numbers from 0.1 to 1.1, and ids below `ids`. After `kDrawn` elements they repeat.
// Bytes, such as codes, keep what the new memory holds.
constexpr int64_t kDrawn = int64_t{1} << 16;

void fill(const TensorView& view, uint64_t key, int64_t ids) {
  RandomStream stream{key, 0, 0, 0};
  int64_t drawn = std::min(view.numel(), kDrawn);
  for (int64_t e = 0; e < drawn; ++e) {
    uint32_t word = stream.block(static_cast<uint64_t>(e))[0];
    float x = 0.1f + uniform01(word);
    if (view.dtype == DS_DTYPE_F32) view.as<float>()[e] = x;
    if (view.dtype == DS_DTYPE_F64) view.as<double>()[e] = x;
    if (view.dtype == DS_DTYPE_BF16) view.as<bf16>()[e] = bf16(x);
    if (view.dtype == DS_DTYPE_I32) view.as<int32_t>()[e] = static_cast<int32_t>(word % ids);
  }
  auto* bytes = view.as<char>();
  int64_t all = view.numel() * size_of(view.dtype), block = drawn * size_of(view.dtype);
  for (int64_t at = block; at < all; at += block) {
    std::memcpy(bytes + at, bytes, static_cast<size_t>(std::min(block, all - at)));
  }
}

class Runner {
 public:
  Runner(const Job& job, int64_t ids) : job_(job), ids_(ids), registry_(built_in_kernels()) {
    std::vector<DType> in, out;
    for (const TensorType& type : job.in) {
      in_.push_back(make(type));
      in.push_back(type.dtype);
    }
    for (const TensorType& type : job.out) {
      out_.push_back(make(type));
      out.push_back(type.dtype);
    }
    impl_ = &registry_.find({job.op, in, out, job.attrs});
    scalars_.group = {1e-4, 0.1, 0.9, 0.95, 1e-8, 0.9};
  }
  void run() { impl_->run({in_, out_, job_.attrs, scalars_, 0, team_}); }
  const std::string& family() const { return impl_->name; }
  const TensorView& operand(size_t i) const { return in_[i]; }

 private:
  TensorView make(const TensorType& type) {
    TensorView view{nullptr, type.dtype, static_cast<int>(type.shape.rank())};
    for (size_t i = 0; i < type.shape.rank(); ++i) view.dims[i] = type.shape[i].extent;
    int64_t bytes = (view.numel() * size_of(type.dtype) + 63) / 64 * 64;
    memory_.emplace_back(std::aligned_alloc(64, static_cast<size_t>(bytes)));
    view.data = memory_.back().get();
    fill(view, memory_.size(), ids_);
    return view;
  }

  Job job_;
  int64_t ids_;
  KernelRegistry registry_;
  ThreadTeam team_{1};
  StepScalars scalars_;
  std::vector<std::unique_ptr<void, FreeDeleter>> memory_;
  std::vector<TensorView> in_, out_;
  const KernelImpl* impl_ = nullptr;
};

const Peak& peak() {
  static const Peak measured = [] {
    ThreadTeam team(1);
    return measure_peak(team);
  }();
  return measured;
}

void measure(benchmark::State& state, const Job& job, int64_t ids) {
  Cost cost = launch_cost(instruction(job.op), job.in, job.out, job.attrs, 1);
  double limit = peak().seconds(cost);
  Runner runner(job, ids);
  // The first launch makes primitives and touches all pages, and is not timed.
  runner.run();
  for (auto _ : state) runner.run();
  auto per_second = [&](double amount) {
    return benchmark::Counter(amount, benchmark::Counter::kIsIterationInvariantRate);
  };
  state.counters["flops/s"] = per_second(cost.flops);
  state.counters["bytes/s"] = per_second(cost.bytes);
  state.counters["of_limit"] = per_second(limit);
  state.SetLabel(runner.family());
}

// Returns the ops of optimized kernels without a row, except the ops named here.
std::set<std::string> missing(const std::vector<Job>& jobs) {
  std::set<std::string> ops;
  const KernelRegistry registry = built_in_kernels();
  for (const KernelImpl& impl : registry.all()) {
    if (impl.name != "ref") ops.insert(impl.op);
  }
  for (const Job& job : jobs) ops.erase(job.op);
  // Row numbers of these operations must ascend, but operands here are random. They are measured in
  // a step (docs/results/benchmarks.md, rows).
  for (const char* op : {"pack_rows", "sum_rows"}) ops.erase(op);
  // ./run bench optimizers measures lion, adagrad and adamw_codes, and ./run bench onebit measures
  // 1-bit Adam in a step. 0/1 Adam, LAMB, 1-bit LAMB and Muon have no bench.
  for (const char* op : {"lion",
                         "adagrad",
                         "lamb_moments",
                         "lamb_ratios",
                         "lamb",
                         "momentum",
                         "add_error",
                         "mean_signs",
                         "pack_signs",
                         "unpack_signs",
                         "frozen_adam",
                         "sum_norms",
                         "own_gradient",
                         "local_adam",
                         "synced_adam",
                         "scale_momentum",
                         "lamb_scales",
                         "frozen_lamb_moments",
                         "frozen_lamb_ratios",
                         "adamw_codes",
                         "muon_momentum",
                         "unit_matrix",
                         "blend",
                         "muon"})
    ops.erase(op);
  return ops;
}

// Attention over `rows` rows with 12 heads of 64, in documents of `length` rows.
class DocumentAttention {
 public:
  DocumentAttention(DType t, int64_t rows, int64_t length) {
    std::vector<Job> both = document_jobs(t, rows);
    for (size_t i = 0; i < 2; ++i) {
      runners_.push_back(std::make_unique<Runner>(both[i], rows));
      const TensorView& begin = runners_[i]->operand(i + 1);
      for (int64_t r = 0; r < rows; ++r)
        begin.as<int32_t>()[r] = static_cast<int32_t>(r / length * length);
    }
  }
  double seconds() {
    auto before = std::chrono::steady_clock::now();
    for (const auto& runner : runners_) runner->run();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - before).count();
  }

 private:
  std::vector<std::unique_ptr<Runner>> runners_;
};

// A row of documents needs only the products within documents. The two forms take turns, so that
// other programs slow down both alike.
int documents_bench() {
  constexpr int64_t kRows = 2048, kDocuments = 8;
  constexpr int kRounds = 15;
  constexpr double kMost = 0.3;
  bool met = true;
  for (DType t : {DS_DTYPE_F32, DS_DTYPE_BF16}) {
    DocumentAttention one(t, kRows, kRows), many(t, kRows, kRows / kDocuments);
    std::vector<double> of_one, of_many;
    for (int round = 0; round < kRounds; ++round) {
      of_one.push_back(one.seconds());
      of_many.push_back(many.seconds());
    }
    double best = *std::min_element(of_one.begin(), of_one.end()),
           packed = *std::min_element(of_many.begin(), of_many.end());
    met = met && packed <= kMost * best;
    fmt::print(
        "attention and its gradient, {}, {} rows: one document {:.2f} ms, {} documents {:.2f} ms, "
        "ratio {:.3f}, at most {}\n",
        dtype_name(t), kRows, best * 1e3, kDocuments, packed * 1e3, packed / best, kMost);
  }
  return met ? 0 : 1;
}

int main(int argc, char** argv) {
  if (argc == 2 && std::string_view(argv[1]) == "documents") return documents_bench();
  for (const Shape& shape : shapes()) {
    std::vector<Job> all = jobs(shape);
    for (const std::string& op : missing(all)) {
      fmt::print(stderr, "bench_kernels: kernel '{}' has no row at shape '{}'\n", op, shape.name);
      return 1;
    }
    for (const Job& job : all) {
      auto run = [job, ids = job.ids ? job.ids : shape.vocab](benchmark::State& state) {
        measure(state, job, ids);
      };
      benchmark::RegisterBenchmark(job.name.c_str(), run)->Unit(benchmark::kMillisecond);
    }
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::RunSpecifiedBenchmarks() == 0) return 0;
  fmt::print(
      "limit of a thread: {:.0f} GFLOP/s f32, {:.0f} bf16 (registers), {:.1f} GB/s (STREAM "
      "triad)\n",
      peak().f32_flops * 1e-9, peak().bf16_flops * 1e-9, peak().bytes * 1e-9);
  return 0;
}

}  // namespace
}  // namespace ds::bench

int main(int argc, char** argv) { return ds::bench::main(argc, argv); }
