// One training step (forward, backward, clip 1.0, AdamW) of a 124M GPT-2 or a 125M Llama, bf16 with f32
// masters and states, 1 rank, batch 4 x 512 random tokens. Prints the best and the median step and ru_maxrss.
//   bench_train_step gpt2|llama THREADS STEPS [--profile|--by-instr]
// STEPS 0: prints "ready", then runs one step for every line of standard input and prints its seconds
// (bench/train_step.py takes turns with torch in this way).
#include <fmt/core.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>

#include "core/base/error.h"
#include "core/base/json.h"
#include "core/base/random.h"
#include "engine/engine.h"
#include "nn/models/hf.h"
#include "tools/profile_table.h"

namespace ds {
namespace {

constexpr int64_t kSeq = 512, kMicro = 4, kRows = kSeq * kMicro;
constexpr int kWarm = 2;

constexpr const char* kGpt2 = R"({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": 768,
  "n_layer": 12, "n_head": 12, "n_positions": 1024, "vocab_size": 50257,
  "attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0})";
constexpr const char* kLlama = R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"],
  "hidden_size": 768, "intermediate_size": 2048, "num_hidden_layers": 12, "num_attention_heads": 12,
  "num_key_value_heads": 4, "max_position_embeddings": 1024, "vocab_size": 32000, "rms_norm_eps": 1e-5,
  "rope_theta": 10000.0, "tie_word_embeddings": false})";

Config config_of() {
  Config c;
  c.micro_batch = c.train_batch = kMicro;
  c.accumulation = 1;
  c.compute = DS_DTYPE_BF16;
  c.optimizer.lr = 1e-4;
  c.optimizer.weight_decay = 0.01;
  return c;
}

std::vector<int32_t> random_tokens(int64_t vocab) {
  std::vector<int32_t> tokens(kRows);
  RandomStream stream{1, 0, 0, 0};
  for (size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<int32_t>(stream.block(i)[0] % static_cast<uint32_t>(vocab));
  }
  return tokens;
}

// The next token of each row's sequence; -100 behind the last one.
std::vector<int32_t> targets_of(const std::vector<int32_t>& tokens) {
  std::vector<int32_t> targets(tokens.begin() + 1, tokens.end());
  targets.push_back(-100);
  for (size_t i = kSeq - 1; i < targets.size(); i += kSeq) targets[i] = -100;
  return targets;
}

// Whether to take one more step, having taken `done`: `steps` in all, or as long as standard input has lines.
bool one_more(int steps, int done) {
  if (steps > 0) return done < steps;
  if (done == 0) fmt::print("ready\n");
  std::fflush(stdout);
  int c;
  while ((c = std::getchar()) != '\n') {
    if (c == EOF) return false;
  }
  return true;
}

double train_once(Engine& engine, const std::vector<int32_t>& tokens, const std::vector<int32_t>& targets) {
  InputView inputs[] = {{tokens.data(), DS_DTYPE_I32, kRows}, {targets.data(), DS_DTYPE_I32, kRows}};
  int64_t begin = now_ns();
  engine.train_batch(inputs);
  return static_cast<double>(now_ns() - begin) * 1e-9;
}

void print_summary(const std::string& name, int threads, std::vector<double> seconds, double loss) {
  if (seconds.empty()) throw Error(DS_ERROR_INVALID_ARGUMENT, "no step was asked for");
  std::sort(seconds.begin(), seconds.end());
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  fmt::print(
      "libds {} bf16 th={} B={} T={}: best {:.0f} tok/s median {:.0f} loss {:.3f} peakRSS {:.2f} GiB\n", name,
      threads, kMicro, kSeq, kRows / seconds.front(), kRows / seconds[seconds.size() / 2], loss,
      static_cast<double>(usage.ru_maxrss) / (1 << 20));
}

int run(const std::string& name, int threads, int steps, const std::string& table) {
  bool by_instruction = table == "--by-instr", profile = by_instruction || table == "--profile";
  Json json = Json::parse(name == "llama" ? kLlama : kGpt2, name);
  HfModel model = hf_model(json, kRows, kSeq, HfMode::training);
  CommOptions comm_options;
  auto comm = create_communicator("self", comm_options);
  EngineOptions options;
  options.threads = threads;
  options.trace = profile;
  Peak peak;
  if (profile) {
    ThreadTeam team(threads);
    peak = measure_peak(team);
  }
  Engine engine(config_of(), model.graph, *comm, options);
  std::vector<int32_t> tokens = random_tokens(name == "llama" ? 32000 : 50257), targets = targets_of(tokens);
  for (int s = 0; s < kWarm; ++s) train_once(engine, tokens, targets);
  StepProfile sums(engine.plan().step);
  if (profile) engine.trace()->take();
  std::vector<double> seconds;
  while (one_more(steps, static_cast<int>(seconds.size()))) {
    int64_t begin = now_ns();
    seconds.push_back(train_once(engine, tokens, targets));
    if (profile) sums.add(engine.trace()->take(), begin, now_ns());
    if (steps == 0) fmt::print("{:.6f}\n", seconds.back());
  }
  print_summary(name, threads, seconds, engine.last_step().loss);
  if (profile) fmt::print("{}", sums.table(peak, by_instruction).text());
  return 0;
}

}  // namespace
}  // namespace ds

int main(int argc, char** argv) {
  if (argc < 4) {
    fmt::print(stderr, "usage: bench_train_step gpt2|llama THREADS STEPS [--profile|--by-instr]\n");
    return 2;
  }
  try {
    return ds::run(argv[1], std::atoi(argv[2]), std::atoi(argv[3]), argc > 4 ? argv[4] : "");
  } catch (const ds::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
