// Measures one training step (forward, backward, clip 1.0, AdamW) of a 124M GPT-2, a 125M Llama,
// the 1.1B Llama in TinyLlama's shape or the 1.5B GPT-2 XL, in bf16 with f32 masters and states, on
// a batch of S (4) x T (512) random tokens over all ranks, or M micro-steps with as many. Prints
// the best and the median step, ru_maxrss and the bytes received by rank 0.
//
//   bench_train_step gpt2|llama|tinyllama|gpt2-xl THREADS STEPS [--profile|--by-instr] [--ranks N]
//                    [--stage S] [--device cuda:0] [--seq T] [--offload] [--trace FILE]
//                    [--f32] [--fused-head auto|always|never] [--quantized-weights]
//                    [--gradient-bits 4|8] [--feedback] [--sparse] [--samples S]
//                    [--layers L] [--micro-steps M] [--reproducible] [--adapter R] [--recompute]
//
// Each rank has THREADS threads; the N (1, 2, 4 or 8) ranks are processes over shared memory.
// --trace writes the last step as a Chrome trace and prints what --profile prints. With STEPS 0 it
// prints "ready", then runs one step for every line of standard input and prints its seconds. In
// this way bench/train_step.py alternates with torch and DeepSpeed, and bench/adapters.py with
// PEFT.
// --adapter trains low-rank adapters of rank R on all linear layers instead of the model.
#include <fmt/core.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>

#include "core/base/error.h"
#include "core/base/json.h"
#include "core/base/random.h"
#include "core/base/trace.h"
#include "diagnostics/profile_table.h"
#include "engine/engine.h"
#include "nn/adapter_keys.h"
#include "nn/models/hf.h"

namespace ds {
namespace {

// Steps that every rank makes before the measurement.
constexpr int kWarm = 2;

struct Job {
  std::string model, device = "cpu";
  int64_t seq = 512;
  int threads = 1, steps = 0, ranks = 1, stage = 0;
  int gradient_bits = 0;                // 0: gradients are not quantized
  int64_t samples = 4;                  // in a micro-step, over all ranks
  int64_t layers = 0, micro_steps = 1;  // layers 0: the model's own
  int64_t adapter_rank = 0;             // 0: the model is trained
  bool quantized_weights = false, feedback = false, sparse = false, reproducible = false,
       offload = false, recompute = false;
  bool profile = false, by_instruction = false, f32 = false;
  std::string trace;  // file for the last step's spans
  std::string fused_head = "auto";
  int64_t tokens() const { return samples * seq * micro_steps; }  // in a step, over all ranks
  int64_t rows() const { return samples * seq / ranks; }          // in a micro-step, on one rank
};

constexpr const char* kGpt2 =
    R"({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": 768,
  "n_layer": 12, "n_head": 12, "n_positions": 1024, "vocab_size": 50257,
  "attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0})";
constexpr const char* kGpt2Xl =
    R"({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": 1600,
  "n_layer": 48, "n_head": 25, "n_positions": 1024, "vocab_size": 50257,
  "attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0})";
constexpr const char* kTinyLlama = R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"],
  "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 22, "num_attention_heads": 32,
  "num_key_value_heads": 4, "max_position_embeddings": 1024, "vocab_size": 32000, "rms_norm_eps": 1e-5,
  "rope_theta": 10000.0, "tie_word_embeddings": false})";
constexpr const char* kLlama = R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"],
  "hidden_size": 768, "intermediate_size": 2048, "num_hidden_layers": 12, "num_attention_heads": 12,
  "num_key_value_heads": 4, "max_position_embeddings": 1024, "vocab_size": 32000, "rms_norm_eps": 1e-5,
  "rope_theta": 10000.0, "tie_word_embeddings": false})";

bool is_llama(const Job& job) { return job.model.ends_with("llama"); }

Json model_of(const Job& job) {
  const char* text = job.model == "tinyllama" ? kTinyLlama
                     : job.model == "llama"   ? kLlama
                     : job.model == "gpt2"    ? kGpt2
                                              : kGpt2Xl;
  Json json = Json::parse(text, job.model);
  if (job.layers > 0) json.set(is_llama(job) ? "num_hidden_layers" : "n_layer", job.layers);
  return json;
}

// The adapters of bench/adapters.py's other side.
AdapterKeys adapters_of(int64_t rank) {
  AdapterKeys keys;
  keys.type = "lora";
  keys.r = rank;
  keys.alpha = 2.0 * static_cast<double>(rank);
  keys.target_modules.expression = kAllLinear;
  return keys;
}

Config config_of(const Job& job) {
  Config c;
  c.train_batch = job.samples * job.micro_steps;
  c.micro_batch = job.samples / job.ranks;
  c.zero.stage = job.stage;
  c.zero.quantized_weights = job.quantized_weights;
  c.zero.quantized_gradients = job.gradient_bits > 0;
  if (job.gradient_bits > 0) c.zero.gradient_bits = job.gradient_bits;
  c.zero.error_feedback = job.feedback;
  c.sparse_gradients = job.sparse;
  c.accumulation = job.micro_steps;
  c.reproducible = job.reproducible;
  if (job.reproducible) c.reduction = "tree";
  c.compute = job.f32 ? DS_DTYPE_F32 : DS_DTYPE_BF16;
  c.fused_head = job.fused_head;
  c.device = job.device;
  if (job.offload) c.zero.optimizer_tier = Tier::host;
  c.optimizer.lr = 1e-4;
  c.optimizer.weight_decay = 0.01;
  if (job.recompute) c.recompute = "layers";
  if (job.adapter_rank > 0) c.get<AdapterKeys>() = adapters_of(job.adapter_rank);
  return c;
}

std::vector<int32_t> random_tokens(int64_t rows, int rank, int64_t vocab) {
  std::vector<int32_t> tokens(static_cast<size_t>(rows));
  RandomStream stream{1, static_cast<uint32_t>(rank), 0, 0};
  for (size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<int32_t>(stream.block(i)[0] % static_cast<uint32_t>(vocab));
  }
  return tokens;
}

// Returns the next token of each row's sequence; -100 after the last one.
std::vector<int32_t> targets_of(const std::vector<int32_t>& tokens, int64_t seq) {
  std::vector<int32_t> targets(tokens.begin() + 1, tokens.end());
  targets.push_back(-100);
  for (size_t i = static_cast<size_t>(seq) - 1; i < targets.size(); i += static_cast<size_t>(seq))
    targets[i] = -100;
  return targets;
}

// Sends one byte from rank 0 to every other rank for each step that it takes. When the bytes end,
// the other ranks end.
class Starter {
 public:
  explicit Starter(int ranks) : pipes_(static_cast<size_t>(ranks), {-1, -1}) {
    for (auto& ends : pipes_) ensure(pipe(ends.data()) == 0, "a pipe for {} ranks", ranks);
  }
  ~Starter() {
    for (auto& ends : pipes_) {
      for (int end : ends) close(end);
    }
  }
  // Called in each rank: keeps only its own ends.
  void take_part(int rank) {
    for (size_t r = 0; r < pipes_.size(); ++r) {
      if (rank != 0) drop(pipes_[r][1]);
      if (static_cast<int>(r) != rank) drop(pipes_[r][0]);
    }
  }
  void start_others() {
    for (size_t r = 1; r < pipes_.size(); ++r)
      ensure(write(pipes_[r][1], "s", 1) == 1, "rank {} has gone", r);
  }
  bool wait_for_start(int rank) {
    char byte;
    return read(pipes_[static_cast<size_t>(rank)][0], &byte, 1) == 1;
  }

 private:
  static void drop(int& end) {
    close(end);
    end = -1;
  }
  std::vector<std::array<int, 2>> pipes_;
};

// Whether rank 0 takes one more step after `done`: `steps` in total or, if `steps` is 0, as long as
// standard input has lines.
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

double train_once(Engine& engine, const std::vector<int32_t>& tokens,
                  const std::vector<int32_t>& targets) {
  InputView inputs[] = {{tokens.data(), DS_DTYPE_I32, static_cast<int64_t>(tokens.size())},
                        {targets.data(), DS_DTYPE_I32, static_cast<int64_t>(targets.size())}};
  int64_t begin = now_ns();
  engine.train_batch(inputs);
  return static_cast<double>(now_ns() - begin) * 1e-9;
}

// Returns the bytes that rank 0 has received from others in collectives of a step.
int64_t received(const Engine& engine) {
  std::map<std::string, CommCount> ledger = engine.runtime().ledger();
  int64_t sum = 0;
  for (const char* what : {"all_gather", "reduce_scatter", "all_reduce", "all_to_all"}) {
    auto at = ledger.find(what);
    if (at != ledger.end()) sum += at->second.bytes;
  }
  return sum;
}

void print_summary(const Job& job, int64_t transient, int64_t bytes, std::vector<double> seconds,
                   double loss) {
  if (seconds.empty()) throw Error(DS_ERROR_INVALID_ARGUMENT, "no step was asked for");
  std::sort(seconds.begin(), seconds.end());
  auto tokens = static_cast<double>(job.tokens());
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  fmt::print(
      "libds {} {} ranks={} stage={} th={} B={} T={}: best {:.0f} tok/s median {:.0f} loss {:.3f} "
      "transient {:.2f} peakRSS {:.2f} GiB received {:.1f} MB a step\n",
      job.model, job.f32 ? "f32" : "bf16", job.ranks, job.stage, job.threads,
      job.samples / job.ranks, job.seq, tokens / seconds.front(),
      tokens / seconds[seconds.size() / 2], loss, static_cast<double>(transient) / (1 << 30),
      static_cast<double>(usage.ru_maxrss) / (1 << 20),
      static_cast<double>(bytes) / 1e6 / static_cast<double>(seconds.size()));
}

void rank_main(const Job& job, int rank, const std::string& url, Starter& starter) {
  HfModel model = hf_model(model_of(job), job.rows(), job.seq, HfMode::training);
  CommOptions comm_options;
  comm_options.rank = rank;
  comm_options.size = job.ranks;
  auto comm = create_communicator(url, comm_options);
  EngineOptions options;
  options.threads = job.threads;
  options.trace = job.profile;
  Peak peak;
  if (job.profile) {
    ThreadTeam team(job.threads);
    peak = measure_peak(team);
  }
  Engine engine(config_of(job), model.graph, *comm, options);
  std::vector<int32_t> tokens = random_tokens(job.rows() * job.micro_steps, rank,
                                              is_llama(job) ? 32000 : 50257),
                       targets = targets_of(tokens, job.seq);
  for (int s = 0; s < kWarm; ++s) train_once(engine, tokens, targets);
  // Other ranks make a step whenever rank 0 starts one, until rank 0 ends.
  while (rank != 0 && starter.wait_for_start(rank)) train_once(engine, tokens, targets);
  if (rank != 0) return;
  StepProfile sums(engine.plan().step());
  if (job.profile) engine.runtime().trace()->take();
  std::vector<double> seconds;
  std::vector<Trace::Span> spans;  // of the last step
  int64_t before = received(engine);
  while (one_more(job.steps, static_cast<int>(seconds.size()))) {
    starter.start_others();
    int64_t begin = now_ns();
    seconds.push_back(train_once(engine, tokens, targets));
    if (job.profile) {
      spans = engine.runtime().trace()->take();
      sums.add(spans, begin, now_ns());
    }
    if (job.steps == 0) fmt::print("{:.6f}\n", seconds.back());
  }
  print_summary(job, engine.plan().step().arenas[0].transient, received(engine) - before, seconds,
                engine.control().last().loss);
  if (job.profile) fmt::print("{}", sums.table(peak, job.by_instruction).text());
  if (job.trace.empty()) return;
  std::ofstream out(job.trace);
  out << trace_json({{0, spans}});
  ensure(out.flush().good(), "{} cannot be written", job.trace);
}

int guarded_rank(const Job& job, int rank, const std::string& url, Starter& starter) {
  try {
    starter.take_part(rank);
    rank_main(job, rank, url, starter);
    return 0;
  } catch (const Error& error) {
    fmt::print(stderr, "bench_train_step: {}\n", error.what());
    return 1;
  }
}

// Ranks above 0 are children of rank 0, whose input and output are those of this process.
int run(const Job& job) {
  std::string url = job.ranks == 1 ? "self" : fmt::format("shm://bench-{}", getpid());
  int code = 0, status = 0;
  {
    Starter starter(job.ranks);
    for (int rank = 1; rank < job.ranks; ++rank) {
      if (fork() == 0) _exit(guarded_rank(job, rank, url, starter));
    }
    code = guarded_rank(job, 0, url, starter);
    // When the starter ends, the other ranks see the end of their bytes.
  }
  while (wait(&status) > 0) code |= status != 0;
  return code;
}

}  // namespace
}  // namespace ds

int main(int argc, char** argv) {
  ds::Job job;
  CLI::App app("A training step of a GPT-2 or a Llama");
  app.add_option("model", job.model)
      ->required()
      ->check(CLI::IsMember({"gpt2", "llama", "tinyllama", "gpt2-xl"}));
  app.add_option("threads", job.threads)->required()->check(CLI::Range(1, 256));
  app.add_option("steps", job.steps)->required()->check(CLI::NonNegativeNumber);
  app.add_option("--ranks", job.ranks)->check(CLI::IsMember({1, 2, 4, 8}));
  app.add_option("--stage", job.stage)->check(CLI::Range(0, 3));
  app.add_option("--device", job.device);
  app.add_option("--seq", job.seq)->check(CLI::Range(1, 1024));
  app.add_flag("--offload", job.offload, "States in memory of the host");
  app.add_flag("--quantized-weights", job.quantized_weights);
  app.add_option("--gradient-bits", job.gradient_bits)->check(CLI::IsMember({0, 4, 8}));
  app.add_flag("--feedback", job.feedback);
  app.add_flag("--sparse", job.sparse);
  app.add_option("--samples", job.samples)->check(CLI::Range(1, 1024));
  app.add_option("--layers", job.layers)->check(CLI::Range(1, 48));
  app.add_option("--micro-steps", job.micro_steps)->check(CLI::Range(1, 64));
  app.add_flag("--reproducible", job.reproducible);
  app.add_option("--adapter", job.adapter_rank)->check(CLI::Range(1, 768));
  app.add_flag("--recompute", job.recompute);
  app.add_flag("--f32", job.f32);
  app.add_option("--fused-head", job.fused_head)->check(CLI::IsMember({"auto", "always", "never"}));
  app.add_flag("--profile", job.profile);
  app.add_flag("--by-instr", job.by_instruction);
  app.add_option("--trace", job.trace);
  CLI11_PARSE(app, argc, argv);
  if (job.samples % job.ranks != 0) {
    fmt::print(stderr, "--samples must be a multiple of --ranks {}, got {}\n", job.ranks,
               job.samples);
    return 2;
  }
  job.profile |= job.by_instruction || !job.trace.empty();
  return ds::run(job);
}
