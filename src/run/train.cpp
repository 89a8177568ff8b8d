#include "run/train.h"

#include <cmath>
#include <memory>

#include "checkpoint/agree.h"
#include "core/base/error.h"
#include "engine/threads.h"
#include "monitor/report.h"
#include "monitor/text.h"
#include "nn/models/model.h"
#include "run/agree.h"
#include "run/loop.h"
#include "run/sample.h"
#include "run/setup.h"
#include "run/spans.h"

namespace ds {
namespace {

// The document of a run: what was given, laid over what the resumed run has.
Json run_document(const Json& config, Communicator& comm, const std::string& resume) {
  if (resume.empty()) {
    if (config.is_null()) raise(DS_ERROR_INVALID_ARGUMENT, "config must be given without resume, got none");
    return config;
  }
  std::string text =
      on_root(comm, "run config", [&] { return read_run_config(open_run_folder(resume)).dump(); });
  Json document = Json::parse(text, resume + "/config.json");
  if (!config.is_null()) merge_patch(document, config);
  return document;
}

// Makes the folder of a new run with its token files and configuration, or opens that of an earlier one.
RunFolder open_folder(const Config& config, const Json& document, const TrainOptions& options,
                      std::string& text) {
  if (!options.resume.empty()) {
    RunFolder folder = open_run_folder(options.resume);
    write_run_config(folder, document, config.effective());
    return folder;
  }
  RunFolder folder = create_run_folder(config.run.dir);
  try {
    if (!options.batch) text = prepare_run_data(config, folder.data());
    write_run_config(folder, document, config.effective());
  } catch (const Error&) {
    discard_run_folder(folder);
    throw;
  }
  return folder;
}

// Loads the newest checkpoint of a resumed run. Returns its path.
std::string load_newest(Engine& engine, const RunFolder& folder) {
  std::string path =
      on_root(engine.comm(), "newest checkpoint", [&] { return latest_checkpoint(folder.checkpoints()); });
  if (path.empty()) {
    raise(DS_ERROR_NOT_FOUND, "no complete checkpoint in '{}' to resume from", folder.checkpoints());
  }
  engine.load(path);
  return path;
}

// One run on one rank, from the parsed configuration to the report.
class Run {
 public:
  Run(const Json& document, const Config& config, Communicator& comm, const TrainOptions& options)
      : document_(document), config_(config), comm_(comm), options_(options) {}

  RunReport train() {
    // First what refuses a bad configuration, so that such a run leaves no folder.
    EngineOptions engine_options;
    engine_options.threads = threads_of_rank(config_, comm_.size());
    engine_options.trace = true;
    engine_ = std::make_unique<Engine>(config_, model_graph(config_), comm_, engine_options);
    folder_.path =
        on_root(comm_, "run folder", [&] { return open_folder(config_, document_, options_, text_).path; });
    agree(comm_, "data", [&] {
      data_ = std::make_unique<RunData>(config_, comm_.rank(), comm_.size(), folder_.data(), options_.batch);
    });
    std::string loaded;
    if (!options_.resume.empty()) loaded = load_newest(*engine_, folder_);
    on_root(comm_, "run record", [&] {
      open_record();
      return std::string();
    });
    return steps(loaded);
  }

 private:
  TierBytes planned() const {
    MemoryPlan plan = memory_plan(engine_->plan());
    return {plan.total(Tier::device), plan.total(Tier::host), plan.total(Tier::nvme)};
  }

  void open_record() {
    TierBytes plan = planned();
    record_ = std::make_unique<Record>(config_, folder_, engine_->steps_taken(), options_.quiet, plan);
    record_->note("run folder " + folder_.path);
    if (!text_.empty()) record_->note(text_);
    record_->note(
        fmt::format("ranks {}, threads a rank {}; memory a rank: device {}, host {}, nvme {}, overhead {}",
                    comm_.size(), threads_of_rank(config_, comm_.size()), bytes_text(plan.device),
                    bytes_text(plan.host), bytes_text(plan.nvme), bytes_text(engine_->overhead().total())));
    for (const std::string& line : engine_->plan().notes) record_->note(line);
  }

  RunReport steps(const std::string& loaded) {
    Loop loop(*engine_, *data_, folder_, options_, record_.get());
    RunReport report = aborting([&] { return loop.run(); });
    if (report.checkpoint.empty()) report.checkpoint = loaded;
    report.folder = folder_.path;
    report.unigram_loss = data_->baselines().unigram;
    report.bigram_loss = data_->baselines().bigram;
    if (report.end == RunEnd::finished) report.sample = run_sample(*engine_, *data_);
    RankSpans spans = gather_spans(comm_, loop.spans());
    on_root(comm_, "report", [&] {
      record_->finish();
      tell(report);
      write_trace(folder_.file("trace.json"), spans);
      write_report(folder_.file("report.html"), summary(report, std::move(spans)));
      return std::string();
    });
    return report;
  }

  // A rank that fails alone (a full disk under metrics.csv, say) ends the others at once.
  RunReport aborting(const std::function<RunReport()>& body) {
    try {
      return body();
    } catch (const Error& error) {
      if (error.status() != DS_ERROR_NUMERIC) comm_.abort(error.what());
      throw;
    }
  }

  void tell(const RunReport& report) {
    if (!std::isnan(report.heldout_loss)) {
      record_->note(fmt::format(
          "held-out loss {:.4f} nats a token (unigram model {:.4f}, ratio {:.3f}; bigram model {:.4f}, "
          "difference {:+.4f})",
          report.heldout_loss, report.unigram_loss, report.heldout_loss / report.unigram_loss,
          report.bigram_loss, report.heldout_loss - report.bigram_loss));
    }
    if (!report.sample.empty()) record_->note("sample:\n" + report.sample);
    if (report.end != RunEnd::finished) {
      record_->note(fmt::format("stopped after step {}; go on with --resume {}", report.step, folder_.path));
    }
    record_->note(fmt::format("checkpoint {}\nreport {}", report.checkpoint, folder_.file("report.html")));
  }

  RunSummary summary(const RunReport& report, RankSpans spans) const {
    const char* ends[] = {"finished", "stopped by its caller", "ended by a callback"};
    RunSummary out;
    out.title = folder_.path;
    out.facts = {{"end", fmt::format("{} after step {}", ends[static_cast<int>(report.end)], report.step)},
                 {"ranks", std::to_string(comm_.size())},
                 {"overhead of rank 0", bytes_text(engine_->overhead().total())},
                 {"text", text_.empty() ? data_->hash() : text_},
                 {"checkpoint", report.checkpoint}};
    out.steps = record_->history().steps;
    out.evals = record_->history().evals;
    if (!std::isnan(report.unigram_loss)) {
      out.baselines = {{"unigram", report.unigram_loss}, {"bigram", report.bigram_loss}};
    }
    out.plan = planned();
    for (const auto& [name, count] : engine_->ledger()) out.comm.push_back({name, count.calls, count.bytes});
    out.spans = std::move(spans);
    out.config = config_.effective();
    out.numerics_key = engine_->numerics_key();
    out.sample = report.sample;
    return out;
  }

  const Json& document_;
  const Config& config_;
  Communicator& comm_;
  const TrainOptions& options_;
  std::string text_;  // one line about the text; rank 0 of a new run
  std::unique_ptr<RunData> data_;
  RunFolder folder_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Record> record_;
};

}  // namespace

RunReport train(const Json& config, Communicator& comm, const TrainOptions& options) {
  Json document = run_document(config, comm, options.resume);
  Config parsed = parse_config(document, comm.size());
  return Run(document, parsed, comm, options).train();
}

}  // namespace ds
