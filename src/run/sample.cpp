#include "run/sample.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/base/utf8.h"
#include "data/tokenizer.h"
#include "engine/inference.h"
#include "engine/threads.h"
#include "inference/generate.h"
#include "io/file.h"
#include "nn/models/model.h"
#include "run/folder.h"
#include "run/setup.h"
#include "run/stop.h"

namespace ds {
namespace {

constexpr int64_t kPromptTokens = 48;
constexpr SamplingOptions kRunSampling{0.8, 40, 0};

// The text of tokens as UTF-8: a NUL, which ends a file of the training text, becomes a newline; what is no
// UTF-8, '?'.
std::string to_text(const Tokenizer& tokenizer, std::span<const int32_t> tokens) {
  std::string bytes = tokenizer.decode(tokens), text;
  for (std::string_view rest = bytes; !rest.empty();) {
    size_t length = utf8_sequence(rest);
    if (length == 0) {
      text += '?';
    } else {
      text += rest[0] == '\0' ? "\n" : rest.substr(0, length);
    }
    rest.remove_prefix(std::max<size_t>(1, length));
  }
  return text;
}

// A small engine for the model of `values`, the configuration that a checkpoint was made with: one sequence,
// no offload.
Json generation_config(const Json& values) {
  Json run, zero, document;
  run.set("sequence", values.at("run").at("sequence"));
  zero.set("stage", values.at("zero_optimization").at("stage"));
  document.set("train_micro_batch_size_per_gpu", 1);
  document.set("model", values.at("model"));
  document.set("run", std::move(run));
  document.set("zero_optimization", std::move(zero));
  document.set("bf16", values.at("bf16"));
  return document;
}

// The newest checkpoint of a run folder, or `run` itself when it is one.
std::string newest_checkpoint(const std::string& run) {
  if (exists(run + "/manifest.json")) return run;
  RunFolder folder = open_run_folder(run);
  std::string path = latest_checkpoint(folder.checkpoints());
  if (path.empty()) raise(DS_ERROR_NOT_FOUND, "no complete checkpoint in '{}'", folder.checkpoints());
  return path;
}

}  // namespace

std::string run_sample(Engine& engine, const RunData& data, const volatile int32_t* stop) {
  int64_t tokens = engine.config().run.sample_tokens;
  if (tokens <= 0) return "";
  std::vector<int32_t> prompt = data.prompt(kPromptTokens);
  if (prompt.empty()) return "";
  auto go_on = [&](int32_t) { return !stop_asked_of_any(engine.comm(), stop); };
  GenerateOptions options{tokens, kRunSampling, {}, true};
  std::vector<int32_t> all = prompt, more = generate(engine, prompt, options, go_on);
  all.insert(all.end(), more.begin(), more.end());
  return to_text(*data.tokenizer(), all);
}

std::string generate_from_run(Communicator& comm, const std::string& run, const std::string& prompt,
                              int64_t tokens, const SamplingOptions& options) {
  require(!prompt.empty(), "prompt must not be empty");
  std::string path = on_root(comm, "newest checkpoint", [&] { return newest_checkpoint(run); });
  Json values = read_checkpoint_info(path).config.at("config");
  auto tokenizer = open_tokenizer(values.at("data").at("tokenizer").string());
  Config config = parse_config(generation_config(values), comm.size());
  EngineOptions engine_options;
  engine_options.threads = threads_of_rank(config, comm.size());
  engine_options.programs.decode.positions = config.sequence;
  InferenceEngine engine(config, model_graph(config), comm, engine_options);
  engine.load(path);
  std::vector<int32_t> ids = tokenizer->encode(prompt);
  require(!ids.empty(), "prompt must have at least one token, got none");
  return to_text(*tokenizer, generate(engine, ids, {tokens, options, {}, true}));
}

}  // namespace ds
