// `libds profile`: a few traced steps on random tokens. The trace gives the time of each
// instruction, its cost (flops and bytes) follows from the program, and the measured peaks of the
// machine turn the cost into the least time that the instruction could take.

#include "diagnostics/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "checkpoint/agree.h"
#include "checkpoint/model_folder.h"
#include "core/base/device_name.h"
#include "core/base/error.h"
#include "core/base/random.h"
#include "core/base/trace.h"
#include "core/config/options.h"
#include "core/config/parse_config.h"
#include "core/device/thread_team.h"
#include "core/graph/ops.h"
#include "diagnostics/feed.h"
#include "diagnostics/golden.h"
#include "diagnostics/peak.h"
#include "engine/engine.h"
#include "engine/observer.h"
#include "engine/threads.h"
#include "exec/executor.h"
#include "exec/step_times.h"
#include "nn/models/hf.h"

namespace ds {
namespace {

// The defaults without a configuration.
constexpr int64_t kMicroBatch = 4, kSequence = 128;
constexpr int64_t kMostSteps = 1000, kMostRows = int64_t{1} << 24;

// Without a configuration, a sequence is as long as the model in `folder` allows, up to kSequence.
int64_t default_sequence(const std::string& folder) {
  int64_t positions = model_positions(folder, read_model_config(folder));
  return positions > 0 ? std::min(kSequence, positions) : kSequence;
}

// Returns the configuration, or the defaults without one, with the changes of the request.
Config config_of(const Json& document, const std::string& folder, const ProfileRequest& request,
                 int world) {
  Config config;
  if (document.is_null()) {
    config.micro_batch = kMicroBatch;
    config.accumulation = 1;
    config.sequence = default_sequence(folder);
    config.compute = DS_DTYPE_BF16;
  } else {
    config = parse_config(document, world);
  }
  if (request.micro_batch > 0) config.micro_batch = request.micro_batch;
  if (request.sequence > 0) config.sequence = request.sequence;
  if (request.dtype != DS_DTYPE_NONE) config.compute = request.dtype;
  settle_scale(config.loss_scale);
  if (request.threads > 0) config.threads = request.threads;
  config.train_batch = config.micro_batch * config.accumulation * world;
  return config;
}

HfModel model_of(Config& config, const std::string& folder) {
  if (!folder.empty()) {
    return hf_model(read_model_config(folder), config.micro_batch * config.sequence,
                    config.sequence);
  }
  return configured_model(config);
}

// Returns the number of rows of the table that the input `tokens` indexes.
int64_t vocabulary(const Graph& graph) {
  ValueId tokens = graph.find_value("tokens");
  for (const Node& node : graph.nodes) {
    const std::optional<IdOperand>& ids = op(node.op).ids;
    if (!ids || ids->targets || node.in[ids->ids] != tokens) continue;
    return graph.type(node.in[ids->from]).shape[ids->dim].extent;
  }
  raise(DS_ERROR_UNSUPPORTED, "graph '{}' has no embedding of an input 'tokens'", graph.name);
}

// Returns a batch of random ids, uniform over the vocabulary and different on every rank, so that a
// profile needs no text.
GoldenBatch random_batch(const Config& config, int64_t vocabulary, int rank) {
  GoldenBatch batch;
  batch.rows = config.micro_batch * config.accumulation;
  batch.tokens = config.sequence;
  RandomStream stream{1, 0, static_cast<uint32_t>(rank), 0};
  for (int64_t i = 0; i < batch.rows * batch.tokens; ++i) {
    uint32_t word = stream.block(static_cast<uint64_t>(i))[0];
    batch.ids.push_back(static_cast<int32_t>(word % static_cast<uint64_t>(vocabulary)));
  }
  batch.labels = batch.ids;
  return batch;
}

// All ranks measure at the same time, because ranks of one machine share its memory.
Peak peak_of(Communicator& comm, int threads) {
  Peak peak;
  comm.barrier("profile");
  agree(comm, "peaks", [&] {
    ThreadTeam team(threads);
    peak = measure_peak(team);
  });
  return peak;
}

}  // namespace

ProfileRequest profile_request(const Json& document) {
  static const std::vector<std::string> types{"f32", "bf16", "f16"}, rows{"op", "instruction"};
  static constexpr Option<ProfileRequest> options[] = {
      {"micro_batch",
       [](auto& request, auto& value) { request.micro_batch = value.integer(1, kMostRows); }},
      {"sequence",
       [](auto& request, auto& value) { request.sequence = value.integer(1, kMostRows); }},
      {"dtype", [](auto& request, auto& value) { request.dtype = parse_dtype(value.word(types)); }},
      {"threads",
       [](auto& request, auto& value) {
         request.threads = static_cast<int>(value.integer(0, ThreadTeam::kMostThreads));
       }},
      {"steps",
       [](auto& request, auto& value) {
         request.steps = static_cast<int>(value.integer(1, kMostSteps));
       }},
      {"by", [](auto& request, auto& value) {
         request.by_instruction = value.word(rows) == "instruction";
       }}};
  return request_of(document, options);
}

std::string ProfileReport::text() const {
  const Peak& peak = table.peak;
  const std::string limit =
      peak.bytes == 0 ? "the limits of this device are not measured"
                      : fmt::format(
                            "limit of a rank: {:.0f} GFLOP/s bf16, {:.0f} f32 (registers), {:.1f} "
                            "GB/s (STREAM triad)",
                            peak.bf16_flops * 1e-9, peak.f32_flops * 1e-9, peak.bytes * 1e-9);
  return fmt::format("{}\n{}\n\n{}\n{:.0f} tokens/s\n", title, limit, table.text(),
                     static_cast<double>(tokens) / table.step);
}

Json ProfileReport::json() const {
  Json out;
  out.set("schema", 1);
  out.set("title", title);
  out.set("tokens", tokens);
  Json rest = table.json();
  for (auto& [key, value] : rest.object()) out.set(key, std::move(value));
  return out;
}

ProfileReport profile(const Json& document, const std::string& folder,
                      const ProfileRequest& request, Communicator& comm) {
  Config config;
  HfModel model;
  agree(comm, "profile", [&] {
    require(!document.is_null() || !folder.empty(), "config or model must be given, got neither");
    config = config_of(document, folder, request, comm.size());
    model = model_of(config, folder);
  });
  EngineOptions options;
  options.threads = threads_of_rank(config, comm.local_size());
  options.trace = true;
  // A training run has no program for inference, so the profiled plan has none, either.
  options.programs.infer = false;
  // The peak rates of threads do not limit a GPU, so they are not measured for one.
  const bool host = !names_cuda(config.device);
  Peak peak = host ? peak_of(comm, options.threads) : Peak{};
  Engine engine(config, model.graph, comm, options);
  GoldenBatch batch = random_batch(config, vocabulary(model.graph), comm.rank());
  Feed feed(model, {&batch});
  std::vector<InputView> inputs = feed.views();

  // The first step is not measured, because it allocates memory that later steps reuse.
  engine.train_batch(inputs);
  const Program& profiled = engine.next_program();
  StepProfile sums(profiled);
  for (int step = 0; step < request.steps; ++step) {
    if (&engine.next_program() != &profiled) {
      raise(DS_ERROR_CONFIG,
            "{}: a profile needs steps of one form, but the steps of {} change after update {}",
            KeyName("optimizer.type"), config.optimizer.type, engine.control().updates());
    }
    engine.runtime().trace()->take();
    int64_t begin = now_ns();
    engine.train_batch(inputs);
    int64_t end = now_ns();
    sums.add(engine.runtime().trace()->take(), begin, end);
  }
  ProfileReport report;
  report.title =
      fmt::format("{}: {} x {} threads, {} x {} x {} tokens a rank, {}, stage {}; mean of {} steps",
                  folder.empty() ? model.family : folder, comm.size(), options.threads,
                  config.accumulation, config.micro_batch, config.sequence,
                  dtype_name(config.compute), config.zero.stage, request.steps);
  if (!host) report.title += fmt::format(", on {}", config.device);
  report.tokens = batch.rows * batch.tokens * comm.size();
  if (host) peak = best(peak, peak_of(comm, options.threads));
  report.table = sums.table(peak, request.by_instruction);
  return report;
}

}  // namespace ds
