// `libds verify`: computes the numbers that were recorded with torch beside a model, and compares
// them, kind by kind. NaN in a run ends only its kind, and a text that libds cannot continue is
// only reported; any other error ends the verification.

#include "diagnostics/verify.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <set>

#include "checkpoint/agree.h"
#include "checkpoint/model_folder.h"
#include "core/base/contains.h"
#include "core/base/error.h"
#include "core/base/path_kind.h"
#include "core/base/tier.h"
#include "core/config/options.h"
#include "core/device/thread_team.h"
#include "diagnostics/trial.h"
#include "engine/state_store.h"
#include "nn/models/hf.h"
#include "nn/models/hf_rows.h"

namespace ds {
namespace {

// Returns the finding of a run that could not be compared because of NaN or infinity.
Finding not_finite(const std::string& kind, double tolerance, const std::string& message) {
  Finding out{kind, "", 0, tolerance, "", {}};
  out.see(std::numeric_limits<double>::infinity(), tolerance, message);
  return out;
}

class Verifier {
 public:
  Verifier(const VerifySubject& subject, const Golden& golden, const VerifyRequest& options,
           Communicator& comm)
      : subject_(subject), golden_(golden), options_(options), comm_(comm) {}

  // All comparisons that begin with the batch in f32 share one engine (base()); each further run
  // creates another.
  std::vector<Finding> run() {
    check_kinds();
    base();
    for (const char* kind : {"accum", "sgd"}) trajectory(kind);
    if (wanted("greedy")) greedy();
    for (const char* kind : {"bf16", "bf16_accum"}) trajectory(kind);
    return std::move(findings_);
  }

 private:
  bool recorded(const std::string& kind) const {
    if (kind == "logits" || kind == "loss" || kind == "grad") return true;
    if (kind == "final_params") return !golden_.final_params.empty() && golden_.run("adamw");
    if (kind == "greedy") return !golden_.greedy.empty();
    return golden_.run(kind) != nullptr;
  }

  // Returns whether a kind runs: it must be recorded, its type must be requested, and if any kinds
  // are requested, it must be one of them.
  bool wanted(const std::string& kind) const {
    const std::vector<std::string>& kinds = options_.kinds;
    bool type = kind.starts_with("bf16") ? options_.bf16 : options_.f32;
    return type && recorded(kind) && (kinds.empty() || contains(kinds, kind));
  }

  void check_kinds() const {
    for (const std::string& kind : options_.kinds) {
      if (!recorded(kind))
        raise(DS_ERROR_NOT_FOUND, "kind '{}' is not among the recorded numbers", kind);
    }
    bool any = std::any_of(verify_kinds().begin(), verify_kinds().end(),
                           [&](const std::string& kind) { return wanted(kind); });
    if (any) return;
    if (options_.kinds.empty())
      raise(DS_ERROR_NOT_FOUND, "dtype bf16 needs recorded numbers in bf16, which are missing");
    raise(DS_ERROR_CONFIG, "dtype rules out all requested kinds: {}",
          fmt::join(options_.kinds, ", "));
  }

  void add(Finding finding) { findings_.push_back(std::move(finding)); }

  // Calls body(). An error because of NaN or infinity, which every rank throws, becomes a failed
  // finding of `kind`.
  template <typename Body>
  void finite(const std::string& kind, double tolerance, Body body) {
    try {
      body();
    } catch (const Error& error) {
      if (error.status() != DS_ERROR_NUMERIC) throw;
      add(not_finite(kind, tolerance, error.what()));
    }
  }

  // Runs the comparisons that begin with the batch in f32.
  void base() {
    bool logits = wanted("logits"), loss = wanted("loss"), grad = wanted("grad"),
         adamw = wanted("adamw"), params = wanted("final_params");
    if (!logits && !loss && !grad && !adamw && !params) return;
    Trial trial(subject_, golden_, golden_.run("adamw"), options_, comm_);
    if (logits)
      add(compare_logits(golden_.batch, trial.logits(), golden_.logits(), golden_.logits_abs));
    if (loss) {
      Finding found{"loss", "abs", 0, golden_.loss_abs, "", {}};
      found.see(std::abs(trial.loss() - golden_.loss), golden_.loss_abs, "the batch");
      add(found);
    }
    if (!grad && !adamw && !params) return;
    finite(adamw || params ? "adamw" : "grad", golden_.grad_rel, [&] {
      trial.step();
      if (grad) gradients(trial);
      if (adamw || params) rest(trial, *golden_.run("adamw"), adamw);
      if (params) final_params(trial);
    });
  }

  // Compares the gradients of the first step, which are still in the engine.
  void gradients(Trial& trial) {
    check_names(trial.params());
    GradComparison comparison(golden_);
    for (const std::string& name : golden_.grad_names) {
      comparison.see(name, trial.tensor(subject_.param(name), "grad"), golden_.grad(name));
    }
    add(comparison.absolute());
    add(comparison.relative());
  }

  // Throws if a parameter has no recorded gradient. A recorded gradient without a parameter is an
  // error later, when Trial::tensor() looks for the parameter.
  void check_names(const std::vector<std::string>& params) const {
    std::set<std::string> known;
    for (const std::string& name : golden_.grad_names) known.insert(subject_.param(name));
    for (const std::string& name : params) {
      if (known.contains(name)) continue;
      raise(DS_ERROR_CONFIG, "parameter '{}' of the model has no gradient in the recorded numbers",
            TensorName(name));
    }
  }

  // Trains the remaining steps of a run and, if `compared`, compares its numbers.
  void rest(Trial& trial, const GoldenRun& run, bool compared) {
    while (trial.numbers().loss.size() < run.loss.size()) trial.step();
    if (!compared) return;
    RunNumbers numbers = trial.numbers();
    if (run.final_loss) numbers.final_loss = trial.loss();
    for (Finding& found : compare_run(run, numbers)) add(std::move(found));
  }

  void final_params(Trial& trial) {
    ParamComparison comparison;
    for (const GoldenParam& param : golden_.final_params) {
      comparison.see(param, trial.tensor(subject_.param(param.name), "master"));
    }
    add(comparison.sum());
    add(comparison.l2());
  }

  void trajectory(const std::string& kind) {
    if (!wanted(kind)) return;
    const GoldenRun& run = *golden_.run(kind);
    Trial trial(subject_, golden_, &run, options_, comm_);
    finite(kind, run.loss_abs, [&] { rest(trial, run, true); });
  }

  // A text that libds cannot continue is only reported, unless kinds were requested.
  void greedy() {
    Finding found{"greedy", "other tokens", 0, 0, "", {}};
    for (size_t i = 0; i < golden_.greedy.size(); ++i) {
      const GoldenText& text = golden_.greedy[i];
      try {
        compare_text(text, i, continue_text(subject_, text, options_, comm_), golden_.logits_abs,
                     found);
      } catch (const Error& error) {
        if (error.status() != DS_ERROR_UNSUPPORTED || !options_.kinds.empty()) throw;
        found.refused.push_back(fmt::format("prompt {}: {}", i, error.what()));
      }
    }
    add(found);
  }

  const VerifySubject& subject_;
  const Golden& golden_;
  const VerifyRequest& options_;
  Communicator& comm_;
  std::vector<Finding> findings_;
};

}  // namespace

int VerifyReport::failed() const {
  return static_cast<int>(
      std::ranges::count_if(findings, [](const Finding& f) { return !f.passed(); }));
}

int VerifyReport::refused() const {
  size_t places = 0;
  for (const Finding& f : findings) places += f.refused.size();
  return static_cast<int>(places);
}

std::string VerifyReport::text() const {
  auto count = std::ranges::count_if(findings, [](const Finding& f) { return f.compared(); });
  std::string end = failed() == 0 ? fmt::format("passed: {} comparisons", count)
                                  : fmt::format("FAILED: {} of {} comparisons", failed(), count);
  if (refused() > 0) end += fmt::format("; not compared: {}", refused());
  return title + "\n" + findings_text(findings) + end + "\n";
}

Json VerifyReport::json() const {
  Json out;
  out.set("schema", 1);
  out.set("title", title);
  out.set("failed", failed());
  out.set("findings", findings_json(findings));
  return out;
}

VerifyReport verify(const VerifySubject& subject, const Golden& golden,
                    const VerifyRequest& options, Communicator& comm) {
  VerifyReport report;
  report.findings = Verifier(subject, golden, options, comm).run();
  report.title = fmt::format("{} ranks, stage {}, tier {}", comm.size(), options.stage,
                             tier_name(options.tier));
  if (options.device != "cpu") report.title += ", device " + options.device;
  return report;
}

VerifyReport verify_folder(const std::string& folder, const VerifyRequest& options,
                           Communicator& comm) {
  std::optional<Golden> golden;
  Json config;
  VerifySubject subject;
  agree(comm, "recorded numbers", [&] {
    if (options.tier == Tier::nvme && !std::filesystem::is_directory(options.nvme_path)) {
      raise(DS_ERROR_NOT_FOUND, "options.nvme_path: '{}' is not a folder{}", options.nvme_path,
            open_hint(options.nvme_path));
    }
    golden.emplace(folder);
    config = read_model_config(folder);
    // Throws if the weights do not have the sizes of the model, before an engine allocates memory
    // for them.
    HfModel model =
        build_hf_model(folder, golden->batch.rows * golden->batch.tokens, golden->batch.tokens);
    if (model.untied) config.set("tie_word_embeddings", false);
    subject.stored = stored_names(model.graph, folder);
    if (comm.rank() == 0) warn_unread(model, folder);
  });
  subject.build = [&, masked = golden->hides_tokens()](int64_t bound, int64_t seq) {
    return hf_model(config, bound, seq, HfMode::evaluation,
                    masked ? HfRows::masked : HfRows::sequences);
  };
  subject.load = [&](StateStore&, const auto& load_weights) { load_weights(folder); };
  VerifyReport report = verify(subject, *golden, options, comm);
  report.title = folder + ": " + report.title;
  return report;
}

}  // namespace ds
