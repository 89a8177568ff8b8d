// Carries out the steps of a run.
//
// Invariant. All ranks leave the loop after the same step and call the same collectives in the same
// order. Anything that only one rank knows (a stop flag, a callback's result, a full disk) is
// agreed on before it has an effect: by agree_max() over the requests of the ranks at the beginning
// of each step, and by on_root() and agree() for errors.
//
// Algorithm. A step agrees on whether to continue, trains, evaluates if due, records the results,
// applies the callback's learning rate, and samples and saves if due. The row of a step is recorded
// before the step is saved, so a resumed run never continues after a step that its metrics lack. A
// save between steps may fail with a warning; the last save must succeed.
#include "run/loop.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <span>
#include <string>
#include <utility>

#include "checkpoint/agree.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/run_paths.h"
#include "core/base/error.h"
#include "core/base/log.h"
#include "core/base/round.h"
#include "core/base/stop.h"
#include "core/base/trace.h"
#include "core/config/loss_scaler.h"
#include "data/curriculum.h"
#include "data/data_efficiency.h"
#include "data/masking.h"
#include "engine/module_monitor.h"
#include "monitor/keys.h"
#include "monitor/readable_text.h"
#include "monitor/run_record.h"
#include "run/keys.h"
#include "run/run_sample.h"
#include "run/stop.h"

namespace ds {
namespace {

// The steps whose spans are kept: a few after the first ones, when the speed has become steady.
constexpr int64_t kTraceBegin = 4, kTraceEnd = 10;

bool due(int64_t every, int64_t step) { return every > 0 && step % every == 0; }

// The mean loss of one micro-batch of held-out rows, and its number of targets or of pairs.
struct Part {
  double loss = 0;
  int64_t targets = 0;
  PairRewards rewards = {};
};

// A sum of rewards, each with a weight, and their weighted mean.
class RewardSum {
 public:
  void add(const PairRewards& rewards, double weight) {
    for (size_t i = 0; i < sum_.size(); ++i) sum_[i] += weight * static_cast<double>(rewards[i]);
    weight_ += weight;
  }
  RewardRecord mean() const {
    return {sum_[0] / weight_, sum_[1] / weight_, sum_[2] / weight_, sum_[3] / weight_};
  }

 private:
  std::array<double, 4> sum_{};
  double weight_ = 0;
};

// Returns the number of targets of a micro-batch or, if its samples are pairs of texts of
// `sequence` rows, the number of pairs with a target.
int64_t weight_of(std::span<const int32_t> targets, int64_t texts, int64_t sequence) {
  const auto is_target = [](int32_t target) { return target != kNoTarget; };
  if (texts == 1) return std::ranges::count_if(targets, is_target);
  int64_t pairs = 0;
  const auto unit = static_cast<size_t>(texts * sequence);
  for (size_t at = 0; at < targets.size(); at += unit)
    pairs += std::ranges::any_of(targets.subspan(at, unit), is_target) ? 1 : 0;
  return pairs;
}

}  // namespace

int64_t heldout_rows_seen(const RunKeys& keys, int64_t all, bool last) {
  const int64_t most = keys.eval_samples;
  return most == 0 || (last && !keys.bars.empty()) ? all : std::min(all, most);
}

Loop::Loop(Engine& engine, ModelInputs& inputs, RunData& data, const RunFolder& folder,
           const TrainOptions& options, const std::string& loaded, RunLog* record)
    : engine_(engine),
      inputs_(inputs),
      data_(data),
      folder_(folder),
      options_(options),
      loaded_(loaded),
      log_(record),
      config_(engine.runtime().config()),
      keys_(config_.get<RunKeys>()),
      batch_tokens_(batch_rows(config_)),
      tokens_(static_cast<size_t>(batch_tokens_ * config_.accumulation)),
      targets_(tokens_.size()),
      begins_(inputs.documents() ? tokens_.size() : 0),
      counted_(inputs.counts() ? tokens_.size() : 0),
      reference_(inputs.referred() ? tokens_.size() : 0),
      first_(engine.control().steps()) {
  report_.step = first_;
  report_.checkpoint = loaded_;
  // A resumed run has a checkpoint of this step.
  if (first_ > 0) saved_ = first_;
}

// If the model isolates documents, rows may have any length. Otherwise sequences begin at multiples
// of run.sequence, and only the last one of a micro-batch may be shorter. With more than one
// sequence, the tokens beyond the curriculum's length are computed but have no targets.
int64_t Loop::tokens_of(int64_t step) const {
  const auto& curriculum = config_.get<CurriculumKeys>();
  bool one = curriculum.enabled && config_.micro_batch == 1 && inputs_.any_length();
  return one && !options_.batch ? curriculum_difficulty(curriculum, step) : data_.tokens_of(step);
}

BatchRows Loop::rows(size_t at, size_t count) {
  return BatchRows{tokens_, targets_, begins_, counted_, reference_}.part(at, count);
}

std::vector<InputView> Loop::views(int64_t micros, int64_t tokens) {
  return inputs_.views(rows(0, static_cast<size_t>(micros * tokens)), tokens);
}

// Fills the batches of the step, unless this rank wants to end the run. Each micro-batch is filled
// at its full length; shorter ones are then moved together, so that the views of the step are
// contiguous.
Loop::Wish Loop::prepare(int64_t step) {
  folder_.lock.check();
  if (callback_ended_) return Wish::end_by_callback;
  if (stop_asked(options_.stop)) return Wish::stop;
  auto unit = static_cast<size_t>(batch_tokens_);
  for (int64_t micro = 0; micro < config_.accumulation && step < keys_.steps; ++micro) {
    const BatchRows from = rows(static_cast<size_t>(micro) * unit, unit);
    if (!data_.fill(step, static_cast<int32_t>(micro), from)) return Wish::end_by_callback;
    const auto used = static_cast<size_t>(tokens_of(step));
    if (used == unit || micro == 0) continue;
    const BatchRows to = rows(static_cast<size_t>(micro) * used, used);
    std::copy_n(from.tokens.begin(), used, to.tokens.begin());
    std::copy_n(from.targets.begin(), used, to.targets.begin());
    if (!to.begins.empty()) std::copy_n(from.begins.begin(), used, to.begins.begin());
    if (!to.counted.empty()) std::copy_n(from.counted.begin(), used, to.counted.begin());
  }
  return Wish::go_on;
}

// The ranks agree before the check for the last step, because a callback may still end the run
// there.
RunReport Loop::run() {
  asks_rate_ =
      agree_max(engine_.runtime().comm(), options_.progress ? 1 : 0, "progress callback") > 0;
  if (keys_.sample_every > 0 && first_ == 0) sample();
  for (int64_t step = first_;; ++step) {
    Wish wish = prepare(step);
    wish =
        static_cast<Wish>(agree_max(engine_.runtime().comm(), static_cast<int>(wish), "stop flag"));
    bool done = step >= keys_.steps;
    if (wish == Wish::end_by_callback || (wish == Wish::stop && !done)) {
      report_.end = wish == Wish::stop ? RunEnd::stopped : RunEnd::callback;
      break;
    }
    if (done || !this->step()) break;
  }
  tried([&] { finish_save(); });
  if (report_.step != saved_) save(report_.step, false);
  report_.saves = saves_;
  if (report_.end == RunEnd::finished) sample();
  return report_;
}

void Loop::sample() {
  if (!report_.samples.empty() && report_.samples.back().step == engine_.control().steps()) return;
  SampleRecord made;
  try {
    made = run_sample(engine_, data_, options_.stop);
  } catch (const Error& error) {
    // Logits are equal on all ranks, so every rank throws this error and may ignore it.
    if (error.status() != DS_ERROR_NUMERIC) throw;
    if (log_)
      log_->note(
          fmt::format("no sample {}: {}", after_step(engine_.control().steps()), error.what()));
  }
  // The trace shows only steps, so the spans of the sample are dropped.
  if (engine_.runtime().trace()) engine_.runtime().trace()->take();
  if (made.text.empty()) return;
  if (log_) log_->note(sample_text(made, report_.samples.empty()));
  report_.samples.push_back(std::move(made));
}

bool Loop::step() {
  int64_t begin = now_ns();
  const int64_t number = engine_.control().steps();
  const auto tokens = static_cast<double>(data_.real_tokens(number));
  engine_.scale_rates(data_.lr_factor());
  StepResult result = engine_.train_batch(views(config_.accumulation, tokens_of(number)));
  data_.end_step();
  rewards_ = step_rewards();
  int64_t end = now_ns();
  double seconds = static_cast<double>(end - begin) * 1e-9;
  if (result.step == first_ + 1) flight_.emplace(engine_.runtime().comm(), folder_.file("flight"));
  keep_spans(result.step, begin, end);
  double heldout = kNoLoss;
  const bool last = result.step == keys_.steps;
  if (last || due(keys_.eval_every, result.step)) heldout = evaluate(last);
  observe(result, heldout, tokens, seconds);
  take_rate();
  // A dynamic loss scale adapts by causing overflows. Skipped steps count only once the scale
  // cannot fall any further.
  if (!result.skipped) {
    skips_ = 0;
  } else if (result.at_floor || !searches_scale(config_)) {
    ++skips_;
  }
  if (skips_ >= keys_.max_skipped_steps) {
    report_.end = RunEnd::skipped;
    report_.failure = result.reason;
    return false;
  }
  if (due(keys_.sample_every, result.step) && result.step < keys_.steps) sample();
  // run() saves after the last step: that save is tried once and must succeed.
  if (due(keys_.save_every, result.step) && result.step < keys_.steps) try_save(result.step);
  return true;
}

// Returns the mean loss over the held-out targets: infinity if it is not finite, and NaN without
// targets or if a stop is requested meanwhile. Overwrites the batch. Groups of micro_batch rows are
// distributed to the ranks in turn. Their losses are added in f64 in the order of the groups,
// weighted by their numbers of targets, so the bits of the result do not depend on the number of
// ranks.
double Loop::evaluate(bool last) {
  Communicator& comm = engine_.runtime().comm();
  const int64_t rows = heldout_rows_seen(keys_, data_.heldout_rows(), last),
                micro = config_.micro_batch;
  const int64_t rounds = ceil_div(ceil_div(rows, micro), comm.size());
  if (rounds == 0) return kNoLoss;
  const int64_t unit = micro * data_.texts() * config_.sequence;
  std::vector<Part> own(static_cast<size_t>(rounds)),
      all(own.size() * static_cast<size_t>(comm.size()));
  for (int64_t round = 0; round < rounds; ++round) {
    const BatchRows batch = this->rows(0, static_cast<size_t>(unit));
    data_.fill_heldout((round * comm.size() + comm.rank()) * micro, rows, batch);
    Part& part = own[static_cast<size_t>(round)];
    part.targets = weight_of(batch.targets, data_.texts(), config_.sequence);
    const EvalLeaf leaf = engine_.eval_alone(views(1, unit));
    part.loss = leaf.loss;
    part.rewards = leaf.rewards;
    if (round + 1 < rounds && stop_asked_of_any(comm, options_.stop)) return kNoLoss;
  }
  comm.all_gather(own.data(), all.data(), static_cast<int64_t>(own.size() * sizeof(Part)),
                  "held-out losses");
  double sum = 0;
  int64_t targets = 0;
  RewardSum rewards;
  for (int64_t group = 0; group < rounds * comm.size(); ++group) {
    // Group g was evaluated by rank g mod ranks, in round g / ranks.
    const Part& part = all[static_cast<size_t>(group % comm.size() * rounds + group / comm.size())];
    if (part.targets == 0) continue;
    sum += part.loss * static_cast<double>(part.targets);
    targets += part.targets;
    rewards.add(part.rewards, static_cast<double>(part.targets));
  }
  if (targets == 0) return kNoLoss;
  if (data_.texts() > 1) heldout_rewards_ = rewards.mean();
  const double mean = sum / static_cast<double>(targets);
  return std::isfinite(mean) ? mean : std::numeric_limits<double>::infinity();
}

// The leaves are added up in their order, so the bits do not depend on the number of ranks.
RewardRecord Loop::step_rewards() {
  const std::vector<PairRewards> own = engine_.rewards();
  if (own.empty()) return {};
  Communicator& comm = engine_.runtime().comm();
  std::vector<PairRewards> all(own.size() * static_cast<size_t>(comm.size()));
  comm.all_gather(own.data(), all.data(), std::ssize(own) * int64_t{sizeof(PairRewards)},
                  "rewards");
  RewardSum sum;
  for (size_t leaf = 0; leaf < all.size(); ++leaf) {
    const auto ranks = static_cast<size_t>(comm.size());
    sum.add(all[leaf % ranks * own.size() + leaf / ranks], 1);
  }
  return sum.mean();
}

// The row of the step was recorded before, and it is on disk before the commit. So a resumed run
// finds the rows of all steps that its checkpoint includes.
void Loop::save(int64_t step, bool started) {
  agree(engine_.runtime().comm(), "run folder", [&] {
    folder_.lock.check();
    data_.check_files();
  });
  if (log_) log_->sync();
  // The checkpoint that the run continues from is known to be complete, while newer ones may have
  // been damaged. So it stays until as many newer ones exist as are to be kept.
  std::string spared =
      saves_ + 1 < keys_.keep ? loaded_ : parse_run_name(options_.resume).checkpoint;
  const Keep keep{keys_.keep, spared};
  timed_save(step, [&] {
    if (started) {
      engine_.checkpoints().start_save(folder_.checkpoints(), data_.place(), keep);
      started_ = step;
      return;
    }
    report_.checkpoint = engine_.checkpoints().save(folder_.checkpoints(), data_.place(), keep);
    saved_ = step;
  });
  ++saves_;
}

void Loop::finish_save() {
  const int64_t step = std::exchange(started_, -1);
  if (step < 0) return;
  timed_save(step, [&] {
    report_.checkpoint = engine_.checkpoints().wait();
    saved_ = step;
  });
}

// The time of a failed save counts, too.
void Loop::timed_save(int64_t step, const std::function<void()>& body) {
  const int64_t begin = now_ns();
  auto count = [&] {
    const double seconds = static_cast<double>(now_ns() - begin) * 1e-9;
    save_seconds_ += seconds;
    report_.save_seconds += seconds;
  };
  try {
    body();
    count();
  } catch (const Error& error) {
    count();
    raise(error.status(), "step {} is not saved: {}; {}", step, error.what(),
          report_.checkpoint.empty()
              ? "there is no checkpoint"
              : fmt::format("the last checkpoint is '{}'", report_.checkpoint));
  }
}

// A file system error is only a warning while a later save may still succeed. Every rank gets the
// same error, and no rank has changed any state.
void Loop::tried(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    if (error.status() != DS_ERROR_IO) throw;
    if (log_) log_line(LogLevel::warning, fmt::format("{}; the run goes on", error.what()));
  }
}

void Loop::try_save(int64_t step) {
  tried([&] { finish_save(); });
  tried([&] { save(step, config_.async_save && engine_.copy_fits()); });
}

// Updates the last values in the report. Rank 0 also logs the row and calls the progress callback.
void Loop::observe(const StepResult& result, double heldout, double tokens, double seconds) {
  report_.step = result.step;
  if (config_.scales_loss()) report_.loss_scale = engine_.control().scaler().scale;
  if (result.skipped) {
    ++report_.skipped;
  } else {
    report_.loss = result.loss;
  }
  if (!std::isnan(heldout)) report_.heldout_loss = heldout;
  if (!log_) return;
  if (result.skipped) {
    log_->note(result.reason);
    SkippedRecord record{result.step, result.loss, result.lr};
    record.samples = data_.samples();
    if (config_.scales_loss()) record.loss_scale = result.loss_scale;
    log_->skipped(record);
    if (!std::isnan(heldout)) log_->eval({result.step, heldout, data_.samples(), heldout_rewards_});
    return;
  }
  TierBytes bytes{engine_.runtime().mapped(Tier::device), engine_.runtime().mapped(Tier::host),
                  engine_.runtime().mapped(Tier::nvme)};
  StepRecord record{result.step,      result.loss, result.lr, result.grad_norm,
                    tokens / seconds, seconds,     bytes};
  record.save_seconds = std::exchange(save_seconds_, 0);
  record.samples = data_.samples();
  record.rewards = rewards_;
  if (config_.scales_loss()) record.loss_scale = result.loss_scale;
  log_->step(record);
  if (!std::isnan(heldout)) log_->eval({result.step, heldout, data_.samples(), heldout_rewards_});
  if (!options_.progress) return;
  const double rate = *engine_.control().get("lr");
  RunProgress progress{.step = result.step,
                       .steps = keys_.steps,
                       .samples = data_.samples(),
                       .loss = result.loss,
                       .heldout_loss = heldout,
                       .grad_norm = result.grad_norm,
                       .lr = result.lr,
                       .tokens_per_second = tokens / seconds,
                       .loss_scale = result.loss_scale,
                       .next_lr = rate};
  if (!options_.progress(progress)) callback_ended_ = true;
  // NaN differs from every rate, so it also counts as a change.
  if (progress.next_lr != rate) set_rate_ = progress.next_lr;
}

// Broadcasts the learning rate that rank 0's callback has requested. NaN returns to the schedule.
void Loop::take_rate() {
  if (!asks_rate_) return;
  struct {
    double given, rate;
  } of_root{set_rate_ ? 1.0 : 0.0, set_rate_.value_or(0)};
  set_rate_.reset();
  engine_.runtime().comm().broadcast(&of_root, sizeof of_root, 0, "learning rate");
  if (of_root.given == 0) return;
  if (of_root.rate < 0 || std::isinf(of_root.rate))
    raise(DS_ERROR_INVALID_ARGUMENT, "next_lr must be finite and at least 0, or NaN, got {}",
          of_root.rate);
  engine_.set("lr", of_root.rate);
}

// Keeps the spans of the latest of the first two steps until the spans of steady steps replace
// them.
void Loop::keep_spans(int64_t step, int64_t begin, int64_t end) {
  if (!engine_.runtime().trace()) return;
  std::vector<Trace::Span> spans = engine_.runtime().trace()->take();
  spans.push_back({kStepTrack, fmt::format("step {}", step), begin, end, 0});
  const auto steady = [](int64_t n) { return n > kTraceBegin && n <= kTraceEnd; };
  const auto first = [](int64_t n) { return n <= 2; };
  int64_t made = step - first_;
  if (steady(made)) {
    std::move(spans.begin(), spans.end(), std::back_inserter(spans_));
  } else if (first(made)) {
    // A run that is too short for steady steps then has a trace as well.
    spans_ = std::move(spans);
  }
  if (made == kTraceBegin) spans_.clear();
  // Traced steps cannot use recorded device graphs, so the other steps are not traced.
  if (!ModuleMonitor::wanted(config_.get<MonitorKeys>()))
    engine_.runtime().trace()->turn(first(made + 1) || steady(made + 1));
}

}  // namespace ds
