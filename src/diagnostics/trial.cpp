// A trial creates an engine that trains as a record says, with the requested ranks, stage and tier,
// which must not change the numbers beyond rounding.

#include "diagnostics/trial.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/config/parse_config.h"
#include "engine/threads.h"
#include "generation/generate.h"
#include "nn/models/hf.h"

namespace ds {
namespace {

// Returns a section zero_optimization with limits so small that there are several buckets and stage
// 3 gathers each more than once.
Json zero_section(const VerifyRequest& options, int64_t numel) {
  Json zero;
  zero.set("stage", options.stage);
  zero.set("stage3_param_persistence_threshold", 0);
  zero.set("stage3_max_reuse_distance", std::max<int64_t>(1, numel / 4));
  zero.set("reduce_bucket_size", std::max<int64_t>(1, numel / 8));
  if (options.tier == Tier::device) return zero;
  Json place;
  place.set("device", options.tier == Tier::host ? "cpu" : "nvme");
  if (options.tier == Tier::nvme) place.set("nvme_path", options.nvme_path);
  zero.set("offload_optimizer", place);
  if (options.stage == 3) zero.set("offload_param", place);
  return zero;
}

// The shape of a trial's micro-batches, and its run (or null).
struct Setup {
  int64_t rows = 1, tokens = 1, accumulation = 1;
  const GoldenRun* run = nullptr;
};

// Writes the configuration as a user would and parses it, so that a trial also tests how
// configurations are read.
Config trial_config(const Setup& setup, const HfModel& model, const VerifyRequest& options,
                    int world) {
  int64_t numel = 0;
  for (const Parameter& p : model.graph.params) numel += model.graph.type(p.value).shape.numel(1);
  Json document, section;
  document.set("train_micro_batch_size_per_gpu", setup.rows);
  document.set("gradient_accumulation_steps", setup.accumulation);
  document.set("zero_optimization", zero_section(options, numel));
  document.set("device", options.device);
  document.set("emulate_tiers", options.tier != Tier::device);
  section.set("sequence", setup.tokens);
  section.set("threads", options.threads);
  document.set("run", std::move(section));
  if (setup.run) {
    Json bf16;
    bf16.set("enabled", setup.run->bf16);
    document.set("bf16", std::move(bf16));
    document.set("optimizer", setup.run->optimizer);
    document.set("gradient_clipping", setup.run->clip);
  }
  return parse_config(document, world);
}

}  // namespace

// A step has lcm(batches, ranks) leaves, and leaf l has batch l modulo the number of batches. So
// all batches occur equally often, and the mean is the same as in the record.
Trial::Trial(const VerifySubject& subject, const Golden& golden, const GoldenRun* run,
             const VerifyRequest& options, Communicator& comm)
    : model_(subject.build(golden.batch.rows * golden.batch.tokens, golden.batch.tokens)) {
  Setup setup{golden.batch.rows, golden.batch.tokens, 1, run};
  all_ = {&golden.batch};
  if (run && run->accum) {
    all_.clear();
    for (const GoldenBatch& micro : golden.micro) all_.push_back(&micro);
  }
  size_t count = all_.size(), world = static_cast<size_t>(comm.size());
  size_t leaves = std::lcm(count, world);
  for (size_t l = static_cast<size_t>(comm.rank()); l < leaves; l += world)
    mine_.push_back(all_[l % count]);
  setup.accumulation = static_cast<int64_t>(mine_.size());
  Config config = trial_config(setup, model_, options, comm.size());
  EngineOptions engine_options;
  engine_options.threads = threads_of_rank(config, comm.local_size());
  engine_ = std::make_unique<Engine>(config, model_.graph, comm, engine_options);
  subject.load(engine_->store(),
               [&](const std::string& folder) { engine_->checkpoints().load_weights(folder); });
  feed_ = std::make_unique<Feed>(model_, mine_);
}

std::vector<float> Trial::logits() {
  return engine_->infer(Feed(model_, {all_[0]}).views()).values;
}

double Trial::loss() {
  double sum = 0;
  for (const GoldenBatch* batch : all_) sum += engine_->eval_batch(Feed(model_, {batch}).views());
  return sum / static_cast<double>(all_.size());
}

void Trial::step() {
  StepResult result = engine_->train_batch(feed_->views());
  if (result.skipped) raise(DS_ERROR_NUMERIC, "{}", result.reason);
  numbers_.loss.push_back(result.loss);
  numbers_.grad_norm.push_back(result.grad_norm);
}

std::vector<float> Trial::tensor(const std::string& name, const std::string& kind) {
  const IdVector<ParamId, std::string>& names = engine_->store().param_names();
  auto at = std::ranges::find(names, name);
  if (at == names.end()) {
    raise(DS_ERROR_CONFIG, "tensor '{}' of the recorded numbers is missing from the model",
          TensorName(name));
  }
  return engine_->store().read_tensor(ParamId(at - names.begin()), kind);
}

// Decodes token by token with a cache, as `libds generate` does.
std::vector<int32_t> continue_text(const VerifySubject& subject, const GoldenText& text,
                                   const VerifyRequest& options, Communicator& comm) {
  auto prompt = static_cast<int64_t>(text.prompt.size()),
       fresh = static_cast<int64_t>(text.tokens.size());
  Setup setup;
  setup.tokens = prompt + fresh;
  HfModel model = subject.build(setup.tokens, setup.tokens);
  Config config = trial_config(setup, model, options, comm.size());
  EngineOptions engine_options;
  engine_options.threads = threads_of_rank(config, comm.local_size());
  engine_options.programs.decode = {
      .positions = setup.tokens, .position_offset = model.position_offset, .by_length = true};
  GenerationEngine engine(config, model.graph, comm, engine_options);
  subject.load(engine.store(), [&](const std::string& folder) { engine.load_weights(folder); });
  return generate(engine.generation(), text.prompt, {fresh, {}, {}, false});
}

}  // namespace ds
