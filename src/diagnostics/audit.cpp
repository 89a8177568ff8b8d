// `libds audit`: trains as a configuration says. In the last step an observer judges every
// instruction (audit_step.cpp). The verdicts of all ranks are merged into one table
// (audit_report.cpp).

#include "diagnostics/audit.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "checkpoint/agree.h"
#include "checkpoint/model_folder.h"
#include "core/base/error.h"
#include "core/base/random.h"
#include "core/config/options.h"
#include "core/config/parse_config.h"
#include "data/batch_rows.h"
#include "data/data_efficiency.h"
#include "data/dataset.h"
#include "data/keys.h"
#include "data/preference.h"
#include "diagnostics/audit_step.h"
#include "engine/threads.h"
#include "nn/models/hf.h"
#include "run/data.h"
#include "run/inputs.h"
#include "run/setup.h"
#include "run/train_options.h"

namespace ds {
namespace {

constexpr int64_t kMostSteps = 1000000, kMostRows = 1000000;
// The minimum timeout of the communicator: a reference kernel may take hours while the other ranks
// wait.
constexpr int64_t kPatienceMs = int64_t{24} * 3600 * 1000;

// A temporary folder of this rank, for token files during the audit.
class Scratch {
 public:
  Scratch() : path_((std::filesystem::temp_directory_path() / "libds-audit-XXXXXX").string()) {
    if (!mkdtemp(path_.data())) raise(DS_ERROR_IO, "'{}': {}", path_, std::strerror(errno));
  }
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Returns a callback that fills each batch with random ids below `vocabulary`.
BatchCallback random_batches(int64_t vocabulary, int rank, int world) {
  return [=](int64_t step, int32_t micro, std::span<int32_t> tokens, std::span<int32_t> targets) {
    auto leaf = static_cast<uint32_t>(micro * world + rank);
    RandomStream stream{1, static_cast<uint32_t>(step), leaf, 0};
    for (size_t i = 0; i < tokens.size(); ++i) {
      std::array<uint32_t, 4> words = stream.block(i);
      tokens[i] = static_cast<int32_t>(words[0] % static_cast<uint64_t>(vocabulary));
      targets[i] = static_cast<int32_t>(words[1] % static_cast<uint64_t>(vocabulary));
    }
    return true;
  };
}

// One audit: it creates the engine and its batches, trains the steps before the last, and audits
// the last.
class Audit {
 public:
  Audit(const Json& document, const AuditRequest& request, Communicator& comm,
        EngineOptions options)
      : request_(request), comm_(comm), options_(std::move(options)) {
    agree(comm_, "audit", [&] {
      config_ = parse_config(document, comm_.size());
      settle_scale(config_.loss_scale);
      config_.comm_timeout_ms = std::max(config_.comm_timeout_ms, kPatienceMs);
      if (request_.threads > 0) config_.threads = request_.threads;
      model_ = configured_model(config_);
      check_masking_keys(config_, model_);
      int64_t unit = batch_rows(config_);
      inputs_.emplace(model_, unit * config_.accumulation, config_.sequence, std::vector<int32_t>(),
                      std::vector<int32_t>(), unit);
      open_data();
    });
  }

  // Trains all steps, audits the last, and returns the report. If the last step was skipped, the
  // report has rank 0's reason.
  AuditReport run() {
    options_.threads = threads_of_rank(config_, comm_.local_size());
    options_.programs.infer = false;
    Engine engine(config_, model_.graph, comm_, options_);
    load_folders(engine.checkpoints(), config_);
    for (int step = 0; step + 1 < request_.steps; ++step) engine.train_batch(batch(step));
    StepAudit audit(options_.threads);
    AuditReport report;
    report.ending = engine.train_batch(batch(request_.steps - 1), &audit).reason;
    report.ending = gather_texts(comm_, report.ending, "audit")[0];
    report.rows = merge_verdicts(engine.program(), audit.verdicts(), comm_);
    report.title = fmt::format(
        "audit of step {}: {}, {} x {} threads, {} x {} x {} tokens a rank of {}, {}, stage {}, "
        "states on {}",
        request_.steps, model_.family, comm_.size(), options_.threads, config_.accumulation,
        config_.micro_batch, config_.sequence,
        config_.get<DataKeys>().given() ? "the text" : "random ids", dtype_name(config_.compute),
        config_.zero.stage, tier_name(engine.plan().zero.state_tier()));
    return report;
  }

 private:
  // Opens the text or, without one, random batches. Each rank prepares the text itself, in its own
  // folder.
  void open_data() {
    TextUse use = model_.causal ? TextUse::next : TextUse::masked;
    BatchCallback random;
    if (!config_.get<DataKeys>().given()) {
      random = random_batches(inputs_->vocabulary(), comm_.rank(), comm_.size());
    } else {
      scratch_ = std::make_unique<Scratch>();
      prepare_run_data(config_.get<DataKeys>(), inputs_->vocabulary(), use, scratch_->path(),
                       nullptr, config_.get<PreferenceKeys>().on());
    }
    data_ = std::make_unique<RunData>(config_, inputs_->vocabulary(), use, comm_.rank(),
                                      comm_.size(), scratch_ ? scratch_->path() : "", random);
  }

  // Returns the inputs of a step: its micro-batches one after the other, each with only as many
  // tokens as the step uses.
  std::vector<InputView> batch(int64_t step) {
    auto unit = static_cast<size_t>(batch_rows(config_)),
         used = static_cast<size_t>(data_->tokens_of(step));
    auto all = used * static_cast<size_t>(config_.accumulation);
    // fill() writes whole micro-batches, so the last micro-batch needs memory for the tokens that
    // are not used.
    tokens_.resize(all + unit);
    targets_.resize(tokens_.size());
    begins_.resize(inputs_->documents() ? tokens_.size() : 0);
    counted_.resize(inputs_->counts() ? tokens_.size() : 0);
    const BatchRows rows{tokens_, targets_, begins_, counted_};
    for (int64_t micro = 0; micro < config_.accumulation; ++micro) {
      size_t at = static_cast<size_t>(micro) * used;
      data_->fill(step, static_cast<int32_t>(micro), rows.part(at, unit));
    }
    data_->end_step();
    return inputs_->views(rows.part(0, all), static_cast<int64_t>(used));
  }

  const AuditRequest& request_;
  Communicator& comm_;
  EngineOptions options_;
  Config config_;
  HfModel model_;
  std::optional<ModelInputs> inputs_;
  std::unique_ptr<Scratch> scratch_;
  std::unique_ptr<RunData> data_;
  std::vector<int32_t> tokens_, targets_, begins_, counted_;
};

}  // namespace

AuditRequest audit_request(const Json& document) {
  static constexpr Option<AuditRequest> options[] = {
      {"steps",
       [](auto& request, auto& value) {
         request.steps = static_cast<int>(value.integer(1, kMostSteps));
       }},
      {"top", [](auto& request,
                 auto& value) { request.top = static_cast<size_t>(value.integer(0, kMostRows)); }},
      {"threads", [](auto& request, auto& value) {
         request.threads = static_cast<int>(value.integer(0, ThreadTeam::kMostThreads));
       }}};
  return request_of(document, options);
}

AuditReport audit(const Json& config, const AuditRequest& request, Communicator& comm,
                  EngineOptions engine) {
  return Audit(config, request, comm, std::move(engine)).run();
}

}  // namespace ds
