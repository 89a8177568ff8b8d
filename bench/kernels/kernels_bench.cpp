// Every optimized kernel at the shapes of the main job (a 7M GPT: width 384, 6 heads, sequences of 128, 8 of
// them in a micro-batch, vocabulary 256), one thread. Counters: rate and its share of what one thread can
// reach at all.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "core/base/random.h"
#include "kernels/kernel.h"
#include "peak.h"

namespace ds::bench {
namespace {

constexpr int64_t kRows = 1024, kWidth = 384, kHeads = 6, kSeq = 128, kVocab = 256, kParams = 1 << 21;

struct FreeDeleter {
  void operator()(void* p) const { std::free(p); }
};

struct Operand {
  DType dtype;
  std::vector<int64_t> dims;
};

// One kernel on its operands. flops: of one launch, 0 for kernels that are bound by memory.
struct Job {
  std::string name, op;
  Attrs attrs;
  std::vector<Operand> in, out;
  double flops = 0;
};

class Runner {
 public:
  explicit Runner(const Job& job) : job_(job), registry_(built_in_kernels()) {
    for (const Operand& o : job.in) in_.push_back(make(o));
    for (const Operand& o : job.out) out_.push_back(make(o));
    std::vector<DType> in, out;
    for (const Operand& o : job.in) in.push_back(o.dtype);
    for (const Operand& o : job.out) out.push_back(o.dtype);
    impl_ = &registry_.find({job.op, in, out, job.attrs});
    scalars_.lr = 1e-4;
  }
  void run() { impl_->run({in_, out_, job_.attrs, scalars_, 0, team_}); }
  const std::string& family() const { return impl_->name; }
  int64_t bytes() const { return bytes_; }

 private:
  TensorView make(const Operand& o) {
    TensorView view{nullptr, o.dtype, static_cast<int>(o.dims.size())};
    for (size_t i = 0; i < o.dims.size(); ++i) view.dims[i] = o.dims[i];
    int64_t bytes = (view.numel() * size_of(o.dtype) + 63) / 64 * 64;
    memory_.emplace_back(std::aligned_alloc(64, static_cast<size_t>(bytes)));
    view.data = memory_.back().get();
    bytes_ += view.numel() * size_of(o.dtype);
    RandomStream stream{memory_.size(), 0, 0, 0};
    for (int64_t e = 0; e < view.numel(); ++e) {
      uint32_t word = stream.block(static_cast<uint64_t>(e / 4))[static_cast<size_t>(e % 4)];
      float x = 0.1f + uniform01(word);
      if (o.dtype == DS_DTYPE_F32) view.as<float>()[e] = x;
      if (o.dtype == DS_DTYPE_F64) view.as<double>()[e] = x;
      if (o.dtype == DS_DTYPE_BF16) view.as<bf16>()[e] = bf16(x);
      if (o.dtype == DS_DTYPE_I32) view.as<int32_t>()[e] = static_cast<int32_t>(word % kVocab);
    }
    return view;
  }

  Job job_;
  KernelRegistry registry_;
  ThreadTeam team_{1};
  StepScalars scalars_;
  std::vector<std::unique_ptr<void, FreeDeleter>> memory_;
  std::vector<TensorView> in_, out_;
  const KernelImpl* impl_ = nullptr;
  int64_t bytes_ = 0;
};

void measure(benchmark::State& state, const Job& job) {
  Runner runner(job);
  runner.run();
  for (auto _ : state) runner.run();
  auto per_second = [&](double amount) {
    return benchmark::Counter(amount, benchmark::Counter::kIsIterationInvariantRate);
  };
  bool half = job.in.empty() || job.in[0].dtype == DS_DTYPE_BF16;
  double peak = half ? peak_bf16_flops() : peak_f32_flops();
  if (job.flops > 0) {
    state.counters["flops/s"] = per_second(job.flops);
    if (peak > 0) state.counters["of_peak"] = per_second(job.flops / peak);
  } else {
    double bytes = static_cast<double>(runner.bytes());
    state.counters["bytes/s"] = per_second(bytes);
    state.counters["of_copy"] = per_second(bytes / peak_bytes());
  }
  state.SetLabel(runner.family());
}

void linear_jobs(DType t, std::vector<Job>& jobs) {
  struct Layer {
    const char* name;
    int64_t out, in;
  };
  for (const Layer& l : {Layer{"qkv", 3 * kWidth, kWidth},
                         {"proj", kWidth, kWidth},
                         {"fc", 4 * kWidth, kWidth},
                         {"fc_proj", kWidth, 4 * kWidth},
                         {"head", kVocab, kWidth}}) {
    Operand x{t, {kRows, l.in}}, w{t, {l.out, l.in}}, b{t, {l.out}}, y{t, {kRows, l.out}};
    double flops = 2.0 * kRows * static_cast<double>(l.in * l.out);
    std::string name = l.name;
    jobs.push_back({"linear/" + name, "linear", {}, {x, w, b}, {y}, flops});
    jobs.push_back({"linear_dx/" + name, "linear_dx", {}, {y, w}, {x}, flops});
    jobs.push_back({"linear_dw/" + name, "linear_dw", {}, {y, x}, {w}, flops});
    const Attrs turned{{"transposed", int64_t{1}}};
    Operand wt{t, {l.in, l.out}};
    jobs.push_back({"linear_t/" + name, "linear", turned, {x, wt, b}, {y}, flops});
    jobs.push_back({"linear_dx_t/" + name, "linear_dx", turned, {y, wt}, {x}, flops});
    jobs.push_back({"linear_dw_t/" + name, "linear_dw", turned, {y, x}, {wt}, flops});
    jobs.push_back({"linear_db/" + name, "linear_db", {}, {y}, {b}});
  }
}

// Heads of 64. Flops count the causal half of the scores.
void attention_jobs(DType t, const std::string& name, int64_t rows, int64_t heads, int64_t seq,
                    std::vector<Job>& jobs) {
  Attrs attrs{{"heads", heads}, {"seq", seq}};
  Operand x{t, {rows, 64 * heads}}, qkv{t, {rows, 3 * 64 * heads}}, lse{DS_DTYPE_F32, {heads, rows}};
  double flops = 2.0 * static_cast<double>(rows * 64 * heads * (seq + 1));
  jobs.push_back({"attention/" + name, "attention", attrs, {qkv}, {x, lse}, flops});
  jobs.push_back({"attention_dx/" + name, "attention_dx", attrs, {x, qkv, x, lse}, {qkv}, 2.5 * flops});
}

void row_jobs(DType t, std::vector<Job>& jobs) {
  Operand x{t, {kRows, kWidth}}, w{t, {kWidth}}, stat{DS_DTYPE_F32, {kRows}}, one{DS_DTYPE_F32, {}};
  Operand ids{DS_DTYPE_I32, {kRows}}, table{t, {kVocab, kWidth}}, places{t, {kSeq, kWidth}};
  Operand wide{t, {kRows, 4 * kWidth}}, logits{t, {kRows, kVocab}};
  Attrs seq{{"seq", kSeq}}, rows{{"rows", kVocab}}, seq_rows{{"seq", kSeq}, {"rows", kSeq}};
  Attrs drop{{"p", 0.1}, {"op", int64_t{3}}};
  jobs.push_back({"embedding", "embedding", {}, {table, ids}, {x}});
  jobs.push_back({"embedding_dw", "embedding_dw", rows, {x, ids}, {table}});
  jobs.push_back({"position", "position", seq, {x, places}, {x}});
  jobs.push_back({"position_dw", "position_dw", seq_rows, {x}, {places}});
  jobs.push_back({"layer_norm", "layer_norm", {{"eps", 1e-5}}, {x, w, w}, {x, stat, stat}});
  jobs.push_back({"layer_norm_dx", "layer_norm_dx", {}, {x, x, w, stat, stat}, {x}});
  jobs.push_back({"layer_norm_dw", "layer_norm_dw", {}, {x, x, stat, stat}, {w, w}});
  jobs.push_back({"gelu", "gelu", {}, {wide}, {wide}});
  jobs.push_back({"gelu_dx", "gelu_dx", {}, {wide, wide}, {wide}});
  jobs.push_back({"add", "add", {}, {x, x}, {x}});
  jobs.push_back({"dropout", "dropout", drop, {x}, {x}});
  jobs.push_back({"cross_entropy", "cross_entropy", {}, {logits, ids}, {one, stat}});
  jobs.push_back({"cross_entropy_dx", "cross_entropy_dx", {}, {one, logits, ids, stat}, {logits}});
}

// What Llama's family has and GPT-2's has not; heads as wide as attention's.
void gated_jobs(DType t, std::vector<Job>& jobs) {
  Operand x{t, {kRows, kWidth}}, w{t, {kWidth}}, stat{DS_DTYPE_F32, {kRows, 1}},
      one_head{t, {kWidth / kHeads}};
  Operand stats{DS_DTYPE_F32, {kRows, kHeads}}, wide{t, {kRows, 4 * kWidth}}, gates{t, {kRows, 8}};
  Attrs eps{{"eps", 1e-6}}, rope{{"heads", kHeads}, {"seq", kSeq}, {"theta", 1e4}};
  jobs.push_back({"rms_norm", "rms_norm", eps, {x, w}, {x, stat}});
  jobs.push_back({"rms_norm/heads", "rms_norm", eps, {x, one_head}, {x, stats}});
  jobs.push_back({"rms_norm_dx", "rms_norm_dx", {}, {x, x, w, stat}, {x}});
  jobs.push_back({"rms_norm_dw", "rms_norm_dw", {{"width", kWidth}}, {x, x, stat}, {w}});
  jobs.push_back(
      {"rms_norm_dw/heads", "rms_norm_dw", {{"width", kWidth / kHeads}}, {x, x, stats}, {one_head}});
  jobs.push_back({"rope", "rope", rope, {x}, {x}});
  for (const char* act : {"silu", "gelu_tanh", "gelu_erf"}) {
    Attrs attrs{{"act", act}};
    jobs.push_back({std::string("glu/") + act, "glu", attrs, {wide, wide}, {wide}});
    jobs.push_back({std::string("glu_dx/") + act, "glu_dx", attrs, {wide, wide, wide}, {wide, wide}});
  }
  jobs.push_back({"gelu/erf", "gelu", {{"form", "erf"}}, {wide}, {wide}});
  jobs.push_back({"silu", "silu", {}, {wide}, {wide}});
  jobs.push_back({"mul", "mul", {}, {x, x}, {x}});
  jobs.push_back({"scale", "scale", {{"factor", 0.5}}, {x}, {x}});
  jobs.push_back({"softcap", "softcap", {{"cap", 30.0}}, {wide}, {wide}});
  jobs.push_back({"scale_rows", "scale_rows", {{"column", int64_t{3}}}, {x, gates}, {x}});
  Attrs columns{{"columns", int64_t{8}}, {"column", int64_t{3}}};
  jobs.push_back({"scale_rows_dw", "scale_rows_dw", columns, {x, x}, {gates}});
  jobs.push_back({"top_gates", "top_gates", {{"k", int64_t{2}}}, {gates}, {gates}});
}

void update_jobs(std::vector<Job>& jobs) {
  Operand f{DS_DTYPE_F32, {kParams}}, h{DS_DTYPE_BF16, {kParams}}, norms{DS_DTYPE_F64, {kParams / 256}};
  Attrs adamw{{"beta1", 0.9}, {"beta2", 0.95}, {"eps", 1e-8}, {"wd", 0.1}, {"l2", int64_t{0}}};
  jobs.push_back({"cast", "cast", {{"dtype", "bf16"}}, {f}, {h}});
  jobs.push_back({"accumulate", "accumulate", {{"beta", int64_t{1}}}, {f}, {f}});
  jobs.push_back({"granule_norms", "granule_norms", {}, {f}, {norms}});
  jobs.push_back({"zero", "zero", {}, {}, {f}});
  jobs.push_back({"adamw", "adamw", adamw, {f}, {f, f, f, h}});
}

std::vector<Job> jobs() {
  std::vector<Job> all;
  for (DType t : {DS_DTYPE_BF16, DS_DTYPE_F32}) {
    size_t first = all.size();
    linear_jobs(t, all);
    for (int64_t seq : {int64_t{128}, int64_t{256}, int64_t{1024}}) {
      attention_jobs(t, std::to_string(seq), kRows, kHeads, seq, all);
    }
    attention_jobs(t, "gpt2_124m", 2048, 12, 512, all);
    row_jobs(t, all);
    gated_jobs(t, all);
    for (size_t i = first; i < all.size(); ++i) all[i].name += std::string("/") + dtype_name(t);
  }
  update_jobs(all);
  return all;
}

}  // namespace
}  // namespace ds::bench

int main(int argc, char** argv) {
  for (const ds::bench::Job& job : ds::bench::jobs()) {
    benchmark::RegisterBenchmark(job.name.c_str(),
                                 [job](benchmark::State& s) { ds::bench::measure(s, job); });
  }
  benchmark::Initialize(&argc, argv);
  benchmark::AddCustomContext("peak_f32_gflops", std::to_string(ds::bench::peak_f32_flops() * 1e-9));
  benchmark::AddCustomContext("peak_bf16_gflops", std::to_string(ds::bench::peak_bf16_flops() * 1e-9));
  benchmark::AddCustomContext("copy_gbytes", std::to_string(ds::bench::peak_bytes() * 1e-9));
  benchmark::RunSpecifiedBenchmarks();
}
