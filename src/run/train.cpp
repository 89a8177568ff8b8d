// Carries out one run, from its document to its report.
//
// A run that cannot work is refused before it takes time or leaves files, on every rank with the
// same error: document, device, model and its keys, engine with its memory, folder, text and
// checkpoint are checked in this order before the first step (loop.cpp). Rank 0 works alone only in
// on_root().
#include "run/train.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <numbers>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "checkpoint/agree.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/folder.h"
#include "checkpoint/model_folder.h"
#include "checkpoint/run_paths.h"
#include "comm/comm_log.h"
#include "compile/plan.h"
#include "core/base/bytes_text.h"
#include "core/base/error.h"
#include "core/base/tier.h"
#include "core/config/config.h"
#include "core/config/describe.h"
#include "core/config/parse_config.h"
#include "core/config/refuse.h"
#include "core/config/values.h"
#include "core/graph/graph.h"
#include "data/baselines.h"
#include "data/curriculum.h"
#include "data/data_efficiency.h"
#include "data/dataset.h"
#include "data/keys.h"
#include "data/preference.h"
#include "engine/engine.h"
#include "engine/options.h"
#include "engine/threads.h"
#include "io/file.h"
#include "monitor/keys.h"
#include "monitor/readable_text.h"
#include "monitor/run_record.h"
#include "monitor/run_report.h"
#include "nn/adapter_keys.h"
#include "nn/models/hf.h"
#include "run/data.h"
#include "run/device.h"
#include "run/folder.h"
#include "run/inputs.h"
#include "run/keys.h"
#include "run/loop.h"
#include "run/plan_column.h"
#include "run/processor.h"
#include "run/reference.h"
#include "run/reference_pass.h"
#include "run/run_document.h"
#include "run/run_log.h"
#include "run/setup.h"
#include "run/spans.h"

namespace ds {
namespace {

// Creates the folder of a new run with its token files, or opens the folder of an earlier run.
// Locks the folder in both cases. The path stays "" if the run was stopped meanwhile.
RunFolder open_folder(const Config& config, int64_t vocabulary, TextUse use,
                      const TrainOptions& options, TextFacts& text) {
  if (!options.resume.empty()) {
    RunFolder folder = lock_run_folder(parse_run_name(options.resume).folder);
    text = TextFacts::kept(read_run_config(folder).text);
    return folder;
  }
  RunFolder folder = create_run_folder(config.get<RunKeys>().dir);
  try {
    if (!options.batch)
      text = prepare_run_data(config.get<DataKeys>(), vocabulary, use, folder.data(), options.stop,
                              config.get<PreferenceKeys>().on());
  } catch (const std::exception& error) {
    discard_run_folder(folder);
    const auto* own = dynamic_cast<const Error*>(&error);
    if (!own || own->status() != DS_ERROR_USER) throw;
    folder.path = "";
  }
  return folder;
}

// Returns the checkpoint that a resumed run continues from: the named one, or else the folder of
// all checkpoints; "" if the run ended before it saved one.
std::string resumed_from(const RunFolder& folder, const std::string& resume) {
  RunName name = parse_run_name(resume);
  if (!name.checkpoint.empty()) return name.checkpoint;
  return has_checkpoints(folder.checkpoints()) ? folder.checkpoints() : "";
}

// One run on one rank, from the parsed configuration to the report.
class Run {
 public:
  Run(const Json& document, Config config, Communicator& comm, const TrainOptions& options)
      : document_(document), config_(std::move(config)), comm_(comm), options_(options) {}

  RunReport train() {
    // The configuration is checked first, so that a run with a bad configuration leaves no folder.
    HfModel model = configured_model(config_);
    check_masking_keys(config_, model);
    check_curriculum_model(config_.get<CurriculumKeys>(), model);
    use_ = model.causal ? TextUse::next : TextUse::masked;
    if (comm_.rank() == 0) warn_unread(model, config_.model.folder);
    int64_t batch = batch_rows(config_);
    inputs_.emplace(model, batch * config_.accumulation, config_.sequence, std::vector<int32_t>(),
                    std::vector<int32_t>(), batch);
    EngineOptions engine_options = run_engine_options(config_, model, comm_.local_size());
    engine_options.module_report = [this](const std::string& text) {
      if (log_) log_->note(text.substr(0, text.size() - 1));
    };
    engine_ = std::make_unique<Engine>(config_, model.graph, comm_, engine_options);
    if (!options_.batch) {
      const auto& data = config_.get<DataKeys>();
      agree_equal(comm_, "data.paths",
                  Json(Json::Array(data.paths.begin(), data.paths.end())).dump());
      agree_equal(comm_, "data.tokenizer", data.tokenizer);
    }
    folder_.path = on_root(comm_, "run folder", [&] {
      folder_ = open_folder(config_, inputs_->vocabulary(), use_, options_, text_);
      return folder_.path;
    });
    if (folder_.path.empty()) return stopped_early();
    try {
      return train_in_folder();
    } catch (...) {
      bool begun = engine_->control().steps() > 0 || has_checkpoints(folder_.checkpoints());
      if (comm_.rank() == 0 && options_.resume.empty() && !begun) {
        log_.reset();
        discard_run_folder(folder_);
      }
      throw;
    }
  }

 private:
  const RunKeys& keys() const { return config_.get<RunKeys>(); }
  RunReport train_in_folder() {
    agree(comm_, "data", [&] {
      data_ = std::make_unique<RunData>(config_, inputs_->vocabulary(), use_, comm_.rank(),
                                        comm_.size(), folder_.data(), options_.batch);
      if (options_.resume.empty()) return;
      data_->check_record(read_run_config(folder_).text, "'" + folder_.file("config.json") + "'");
    });
    agree_equal(comm_, "the text in '" + folder_.data() + "'", data_->record().dump());
    // Checked before the first step: a long run should not end with a bar that cannot be measured.
    on_root(comm_, "run.bars", [&] {
      check_bars();
      return std::string();
    });
    std::string loaded = begin();
    on_root(comm_, "leftovers", [&] {
      if (!options_.resume.empty()) clean_run_folder(folder_);
      return std::string();
    });
    if (!loaded.empty() && engine_->control().steps() >= keys().steps) return nothing_left(loaded);
    on_root(comm_, "run record", [&] {
      Json text = data_->record();
      text_.keep(text);
      write_run_config(folder_, document_, config_.effective(), text);
      open_record();
      return std::string();
    });
    if (!take_reference()) {
      RunReport stopped = stopped_early();
      stopped.folder = folder_.path;
      return stopped;
    }
    RunReport report = steps(loaded);
    if (report.end == RunEnd::skipped) {
      raise(DS_ERROR_NUMERIC, "{}; run.max_skipped_steps is {}; saved after step {} in '{}'",
            report.failure, keys().max_skipped_steps, report.step, report.checkpoint);
    }
    if (report.end == RunEnd::finished) judge(report);
    return report;
  }

  // Rank 0: returns the known held-out losses that a model should beat, in nats per token.
  std::vector<std::pair<std::string, double>> baselines() const {
    std::vector<std::pair<std::string, double>> out;
    const Baselines& counted = data_->baselines();
    if (!std::isnan(counted.unigram))
      out = {{"unigram", counted.unigram}, {"bigram", counted.bigram}};
    if (text_.gzip_bytes > 0 && use_ == TextUse::next && data_->heldout_targets() > 0) {
      double bits = 8 * static_cast<double>(text_.gzip_bytes);
      out.emplace_back("gzip",
                       bits * std::numbers::ln2 / static_cast<double>(data_->heldout_targets()));
    }
    return out;
  }

  // Rank 0: returns how many held-out bits per byte equal one nat per token; NaN if unknown.
  double bits_a_byte() const {
    if (text_.heldout_bytes == 0 || use_ != TextUse::next) return kNoLoss;
    return static_cast<double>(data_->heldout_targets()) /
           static_cast<double>(text_.heldout_bytes) / std::numbers::ln2;
  }

  // Rank 0: returns, for example, "64 of the 700 held-out samples" if the last held-out loss is the
  // mean of only a part of them, and "" otherwise.
  std::string seen_heldout(const RunReport& report) const {
    const bool last = report.step == keys().steps;
    const int64_t all = data_->heldout_rows(), seen = heldout_rows_seen(keys(), all, last);
    return seen < all ? fmt::format("{} of the {} held-out samples", seen, all) : "";
  }

  double bar(const std::string& name) const {
    for (const auto& [known, loss] : baselines()) {
      if (known == name) return loss;
    }
    return kNoLoss;
  }

  // Throws if run.bars names a baseline that was not measured, since no run could be below it.
  void check_bars() const {
    for (const std::string& name : keys().bars) {
      if (!std::isnan(bar(name))) continue;
      std::string limit = name == "gzip" ? ", at most 64 MiB of it"
                                         : fmt::format(" and at most {} tokens", kBaselineVocab);
      refuse("run.bars",
             "\"{}\" cannot be measured: it needs held-out text of a model that predicts the next "
             "token{}",
             name, limit);
    }
  }

  // Throws on every rank if the finished run missed one of its bars, or if its loss is not finite.
  void judge(const RunReport& report) {
    if (std::isinf(report.heldout_loss)) {
      raise(DS_ERROR_NUMERIC,
            "the held-out loss after step {} is not finite; the run is complete in '{}'",
            report.step, folder_.path);
    }
    if (keys().bars.empty()) return;
    on_root(comm_, "run.bars", [&] {
      for (const std::string& name : keys().bars) {
        double level = bar(name), unit = bits_a_byte();
        if (report.heldout_loss < level) continue;
        refuse(
            "run.bars",
            "the held-out loss after step {}, {:.4f} nats per token ({:.3f} bits per byte), is not "
            "below {}, {:.4f} ({:.3f}); the run is complete in '{}'",
            report.step, report.heldout_loss, report.heldout_loss * unit, name, level, level * unit,
            folder_.path);
      }
      return std::string();
    });
  }

  // Loads the checkpoint that a resumed run continues from, and returns its path. Without one,
  // loads the folders that the run starts from.
  std::string begin() {
    std::string loaded = options_.resume.empty() ? "" : load();
    if (loaded.empty()) load_folders(engine_->checkpoints(), config_);
    return loaded;
  }

  std::string load() {
    std::string from = on_root(comm_, "resumed checkpoint",
                               [&] { return resumed_from(folder_, options_.resume); });
    if (from.empty()) return from;
    CheckpointInfo info = engine_->checkpoints().load(from);
    // The position in the checkpoint is valid only for the same text and order of samples.
    started_ = info.step > 0;
    if (!take_reference()) return info.path;
    agree(comm_, "corpus", [&] {
      data_->check_record(info.client, "checkpoint '" + info.path + "'");
      if (!options_.batch) check_order(config_, info);
      data_->go_on(info);
    });
    return info.path;
  }

  // Gives the data the losses of the reference, unless it has them or the loss needs none. Returns
  // false if a stop was requested meanwhile. Collective.
  bool take_reference() {
    const PreferenceKeys& keys = config_.get<PreferenceKeys>();
    if (!keys.referred() || data_->has_reference() || options_.batch) return true;
    ReferenceRequest request{
        keys.reference.empty() ? folder_.file("data/reference.losses") : keys.reference,
        started_ || !keys.reference.empty(), options_.stop, [&](const std::string& line) {
          if (log_) log_->note(line);
        }};
    std::optional<ReferenceLosses> losses = find_reference(*engine_, *inputs_, *data_, request);
    if (!losses) return false;
    data_->take_reference(std::move(*losses));
    return true;
  }

  void say(const std::string& line) const {
    if (comm_.rank() == 0 && options_.quiet < 2) print_out(line + "\n");
  }

  RunReport stopped_early() {
    RunReport report;
    report.end = RunEnd::stopped;
    return report;
  }

  // Handles a resume of a complete run. Its bars may be new, so it is evaluated and judged again.
  RunReport nothing_left(const std::string& loaded) {
    say(fmt::format("step {} of run.steps {} is done in '{}': nothing is left to do",
                    engine_->control().steps(), keys().steps, loaded));
    RunReport report;
    report.folder = folder_.path;
    report.step = engine_->control().steps();
    report.checkpoint = loaded;
    if (!keys().bars.empty()) {
      report.heldout_loss =
          Loop(*engine_, *inputs_, *data_, folder_, options_, loaded, nullptr).evaluate(true);
      judge(report);
    }
    return report;
  }

  TierBytes planned() const {
    MemoryPlan plan = engine_->plan().memory;
    return {plan.total(Tier::device), plan.total(Tier::host), plan.total(Tier::nvme)};
  }

  void open_record() {
    TierBytes plan = planned();
    log_ = std::make_unique<RunLog>(keys().steps, config_.get<MonitorKeys>(), folder_,
                                    engine_->control().steps(), data_->samples(), options_.quiet,
                                    plan);
    log_->note("run folder " + folder_.path);
    if (!text_.lines.empty()) log_->note(text_.lines);
    if (std::string masking = data_->masking(); !masking.empty()) log_->note(masking);
    const std::string rows = data_->rows();
    if (!rows.empty()) log_->note(rows);
    if (config_.by_tokens()) {
      log_->note("loss: mean over the targets of a step (loss_average: \"tokens\")");
    } else if (!rows.empty() && data_->texts() == 1) {
      log_->note("loss: mean over micro-batches (loss_average: \"tokens\" averages over targets)");
    }
    if (use_ == TextUse::masked && keys().sample_tokens > 0) {
      log_->note(
          "no sample (run.sample_tokens): a model that predicts masked tokens cannot continue a "
          "text");
    }
    log_->note(fmt::format(
        "ranks {}, threads per rank {}; memory per rank: device {}, host {}, nvme {}, overhead {}",
        comm_.size(), threads_of_rank(config_, comm_.local_size()), bytes_text(plan.device),
        bytes_text(plan.host), bytes_text(plan.nvme),
        bytes_text(engine_->runtime().overhead().total())));
    for (const std::string& line : engine_->plan().notes) log_->note(line);
    note_short_run();
    note_saves();
  }

  bool saves_started() const { return config_.async_save && engine_->copy_fits(); }

  void note_saves() {
    if (!config_.async_save || engine_->copy_fits()) return;
    log_->note(fmt::format(
        "run.async_save: memory_budget.host {} has no room for a copy of the state ({}) beside the "
        "plan's {}: steps wait for saves",
        bytes_text(config_.memory_budget.host), bytes_text(engine_->store().copy_bytes()),
        bytes_text(planned().host)));
  }

  void note_short_run() {
    auto total = config_.scheduler.numbers.find("total_num_steps");
    if (total == config_.scheduler.numbers.end()) return;
    auto end = static_cast<int64_t>(total->second[0]);
    if (end <= keys().steps) return;
    log_->note(fmt::format(
        "the run ends at step {} (run.steps), before the end of its schedule at step {} "
        "(scheduler.params.total_num_steps)",
        keys().steps, end));
  }

  RunReport steps(const std::string& loaded) {
    int64_t first = engine_->control().steps() + 1;
    first_ = first - 1;
    Loop loop(*engine_, *inputs_, *data_, folder_, options_, loaded, log_.get());
    RunReport report = aborting([&] { return loop.run(); });
    report.folder = folder_.path;
    report.unigram_loss = data_->baselines().unigram;
    report.bigram_loss = data_->baselines().bigram;
    if (report.end == RunEnd::finished) {
      save_model();
    }
    RankSpans spans = gather_spans(comm_, loop.spans());
    std::vector<CommTime> times = engine_->runtime().comm_times();
    on_root(comm_, "report", [&] {
      log_->finish();
      tell(report);
      if (!times.empty()) {
        log_->note("communication of rank 0\n" + comm_log_text(times));
        dispensable(
            [&] { write_file_atomic(folder_.file("communication.csv"), comm_log_csv(times)); });
      }
      dispensable([&] { write_trace(folder_.file("trace.json"), spans); });
      dispensable([&] {
        write_report(folder_.file("report.html"), summary(report, first, times, std::move(spans)));
      });
      return std::string();
    });
    return report;
  }

  // Saves the model of a run that started from a model folder, in the layout of that folder, or the
  // adapter of a run that has one.
  void save_model() {
    if (config_.model.folder.empty() && !config_.get<AdapterKeys>().on()) return;
    engine_->checkpoints().save_weights(folder_.file("model"), config_.model.folder);
    if (log_) note_export(*log_, config_, folder_.file("model"));
  }

  // Aborts the other ranks at once if this rank fails alone, for example because of a full disk.
  RunReport aborting(const std::function<RunReport()>& body) {
    try {
      return body();
    } catch (const std::exception& error) {
      comm_.abort(error.what());
      throw;
    }
  }

  void tell(const RunReport& report) {
    if (!std::isnan(report.heldout_loss)) {
      const std::string seen = seen_heldout(report);
      std::string line = fmt::format("held-out loss {:.4f} {}{}{}", report.heldout_loss,
                                     data_->texts() > 1        ? "per pair"
                                     : use_ == TextUse::masked ? "nats per masked token"
                                                               : "nats per token",
                                     seen.empty() ? "" : " of ", seen);
      if (!std::isnan(report.unigram_loss)) {
        line += fmt::format(
            " (unigram model {:.4f}, ratio {:.3f}; bigram model {:.4f}, difference {:+.4f})",
            report.unigram_loss, report.heldout_loss / report.unigram_loss, report.bigram_loss,
            report.heldout_loss - report.bigram_loss);
      }
      log_->note(line);
      if (double unit = bits_a_byte(); !std::isnan(unit)) {
        line = fmt::format("bits per byte of the {} held-out bytes: model {:.3f}",
                           text_.heldout_bytes, report.heldout_loss * unit);
        for (const auto& [name, loss] : baselines()) {
          line += fmt::format(", {} {:.3f}", baseline_text(name), loss * unit);
        }
        if (!seen.empty()) line += fmt::format(" (the model's is of {})", seen);
        log_->note(line);
      }
    }
    if (report.end == RunEnd::stopped || report.end == RunEnd::callback) {
      log_->note(
          fmt::format("stopped after step {}; go on with --resume {}", report.step, folder_.path));
    }
    if (report.skipped > 0) {
      std::string line =
          fmt::format("{} of {} steps were skipped for NaN or infinity in loss or gradients",
                      report.skipped, report.step - first_);
      if (!std::isnan(report.loss_scale))
        line += fmt::format("; the loss scale is {} now", report.loss_scale);
      log_->note(line);
    }
    if (keys().save_every > 0 && report.saves > 0) {
      log_->note(fmt::format("checkpoints: {}, for which steps waited {}{}", report.saves,
                             time_text(report.save_seconds),
                             saves_started() ? "; a thread wrote all but the last" : ""));
    }
    log_->note(
        fmt::format("checkpoint {}\nreport {}", report.checkpoint, folder_.file("report.html")));
  }

  // Collects the contents of the report. `first` is the first step of this process.
  RunSummary summary(const RunReport& report, int64_t first, std::span<const CommTime> times,
                     RankSpans spans) const {
    const char* ends[] = {"finished", "stopped by its caller", "ended by a callback",
                          "ended by a step with NaN or infinity"};
    RunSummary out;
    out.title = folder_.path;
    out.end = ends[static_cast<int>(report.end)];
    if (!report.failure.empty()) out.end += ": " + report.failure;
    out.first_step = first;
    out.skipped = report.skipped;
    out.loss_scale = report.loss_scale;
    out.saves = report.saves;
    out.save_seconds = report.save_seconds;
    out.saves_started = saves_started();
    const Graph& graph = engine_->plan().graph;
    for (const Parameter& p : graph.params) out.parameters += graph.type(p.value).shape.numel(1);
    out.ranks = comm_.size();
    out.threads = threads_of_rank(config_, comm_.local_size());
    out.processor = processor_name();
    out.overhead = engine_->runtime().overhead().total();
    out.facts = {{"text", text_.lines.empty() ? data_->hash() : text_.lines},
                 {"checkpoint", report.checkpoint}};
    out.steps = log_->history().steps;
    out.evals = log_->history().evals;
    out.baselines = baselines();
    out.bits_a_byte = bits_a_byte();
    out.seen_heldout = seen_heldout(report);
    out.plan = planned();
    out.budget = {config_.memory_budget.device, config_.memory_budget.host,
                  config_.memory_budget.nvme};
    for (const auto& [name, count] : engine_->runtime().ledger())
      out.comm.push_back({name, count.calls, count.bytes});
    if (!times.empty()) out.comm_times = comm_log_table(times);
    out.spans = std::move(spans);
    out.config = config_.effective();
    out.numerics_key = engine_->checkpoints().numerics_key();
    out.samples = report.samples;
    out.plan_columns = {plan_column(engine_->plan(), config_.zero)};
    out.plan_note = plan_column_note();
    return out;
  }

  const Json& document_;
  Config config_;
  Communicator& comm_;
  const TrainOptions& options_;
  TextUse use_ = TextUse::next;
  TextFacts text_;  // rank 0 only
  std::unique_ptr<RunData> data_;
  RunFolder folder_;
  std::optional<ModelInputs> inputs_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<RunLog> log_;
  // Whether the weights are those of a checkpoint after a step.
  bool started_ = false;
  // Steps made before this process.
  int64_t first_ = 0;
};

}  // namespace

RunReport train(const Json& config, Communicator& comm, const TrainOptions& options) {
  Json document = run_document(config, comm, options.resume);
  Config parsed = parse_run_document(document, comm.size(), options.resume);
  if (options.resume.empty()) {
    TrainOptions resumed = options;
    resumed.resume = run_to_resume(parsed.get<RunKeys>(), comm);
    if (!resumed.resume.empty()) return train(config, comm, resumed);
  }
  if (comm.rank() == 0) log_warnings(parsed);
  settle_device(parsed, comm);
  return Run(document, std::move(parsed), comm, options).train();
}

}  // namespace ds
