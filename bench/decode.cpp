// Continues a random 124M GPT-2 token by token, with batch 1 on one rank. Prints tokens a second,
// the bytes of weights read for them a second (every matrix and the tied head once a token), and
// their share of a STREAM triad that the same threads make in the same run, before and after
// (diagnostics/peak.h: stored past the caches).
//
//   bench_decode [THREADS=2] [TOKENS=64] [bf16|f32]
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/base/json.h"
#include "core/base/random.h"
#include "diagnostics/peak.h"
#include "generation/generate.h"
#include "generation/generation_engine.h"
#include "nn/models/hf.h"

namespace ds {
namespace {

constexpr int64_t kPrompt = 32, kPositions = 1024;
constexpr const char* kGpt2 =
    R"({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": 768,
  "n_layer": 12, "n_head": 12, "n_positions": 1024, "vocab_size": 50257})";

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void fill(GenerationEngine& engine) {
  for (size_t p = 0; p < engine.store().param_names().size(); ++p) {
    int64_t numel = 1;
    for (int64_t extent : engine.store().param_shapes()[p]) numel *= extent;
    std::vector<float> values(static_cast<size_t>(numel));
    RandomStream stream{1, static_cast<uint32_t>(p), 0, 0};
    for (size_t i = 0; i < values.size(); i += 4) {
      std::array<uint32_t, 4> words = stream.block(i / 4);
      for (size_t k = 0; k < 4 && i + k < values.size(); ++k) {
        values[i + k] = 0.04f * (static_cast<float>(words[k]) * 0x1p-32f - 0.5f);
      }
    }
    engine.store().write_tensor(ParamId(p), "master", values);
  }
}

// Returns the bytes of the matrices that `linear` reads for a token. The table of the tied head is
// one of them.
int64_t weight_bytes(const Graph& graph) {
  int64_t bytes = 0;
  for (const Node& node : graph.nodes) {
    if (node.op != "linear") continue;
    const TensorType& w = graph.type(node.in[1]);
    bytes += w.shape.numel(1) * size_of(w.dtype);
  }
  return bytes;
}

// A token reads every weight once, so the bandwidth of memory bounds the speed. The limit is the
// better of two triads, one before and one after, because other programs may slow down either.
void run(int threads, int64_t tokens, DType dtype) {
  Config config;
  config.micro_batch = config.train_batch = config.accumulation = 1;
  config.compute = dtype;
  HfModel model = hf_model(Json::parse(kGpt2), kPositions, kPositions);
  auto comm = create_communicator("self", {});
  EngineOptions options;
  options.threads = threads;
  options.programs.decode.positions = kPositions;
  GenerationEngine engine(config, model.graph, *comm, options);
  fill(engine);
  ThreadTeam team(threads);
  double before = measure_peak(team).bytes;

  std::vector<int32_t> prompt(kPrompt);
  for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<int32_t>(i * 997 % 50257);
  double start = now();
  std::vector<double> at;
  // The first token comes from the prompt, so the run makes one more token than it times.
  generate(engine.generation(), prompt, {tokens + 1, {}, {}, false}, [&](int32_t) {
    at.push_back(now());
    return true;
  });
  double after = measure_peak(team).bytes, stream = std::max(before, after);
  std::vector<double> each;
  for (size_t i = 1; i < at.size(); ++i) each.push_back(at[i] - at[i - 1]);
  std::sort(each.begin(), each.end());
  double total = at.back() - at.front(), median = each[each.size() / 2];
  auto bytes = static_cast<double>(weight_bytes(engine.plan().decode->graph));
  double count = static_cast<double>(each.size());
  fmt::print("gpt2 124M {} batch 1, {} threads, {} tokens after a prompt of {}\n",
             dtype_name(dtype), threads, tokens, kPrompt);
  fmt::print("prompt      {:8.1f} ms\n", (at.front() - start) * 1e3);
  fmt::print("decode      {:8.1f} tokens/s (median token {:.2f} ms, {:.1f} tokens/s)\n",
             count / total, median * 1e3, 1 / median);
  fmt::print("weights     {:8.1f} MB a token, {:.2f} GB/s\n", bytes * 1e-6,
             bytes * count / total * 1e-9);
  fmt::print("STREAM      {:8.2f} GB/s (before {:.2f}, after {:.2f})\n", stream * 1e-9,
             before * 1e-9, after * 1e-9);
  fmt::print("share       {:8.1f} % (of STREAM / weight bytes)\n",
             100 * bytes * count / total / stream);
}

}  // namespace
}  // namespace ds

int main(int argc, char** argv) {
  int threads = argc > 1 ? std::atoi(argv[1]) : 2;
  long tokens = argc > 2 ? std::atol(argv[2]) : 64;
  std::string_view type = argc > 3 ? argv[3] : "bf16";
  if (threads < 1 || tokens < 1 || (type != "bf16" && type != "f32")) {
    fmt::print(stderr, "usage: bench_decode [THREADS=2] [TOKENS=64] [bf16|f32]\n");
    return 2;
  }
  try {
    ds::run(threads, tokens, type == "bf16" ? DS_DTYPE_BF16 : DS_DTYPE_F32);
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_decode: {}\n", error.what());
    return 1;
  }
  return 0;
}
