// Checks whether a plan fits this machine.
//
// Problem. Users who plan a run want to know whether it fits this machine, and if not, what to
// change. Invariant. The limits are those that an engine checks before it allocates memory
// (compile/memory_fit.h). The advice is not a rule of thumb: each suggested change was planned, and
// is listed with the bytes of its plan. Algorithm. Single changes are tried in order, the cheapest
// first; up to three that fit are listed. If none fits, all possible changes are tried together,
// with state in files on the same machines, and without state in files on 2, 4, 8, ... times as
// many machines. Cost. One compilation for each change that is tried, about twenty at most.
#include "run/plan_fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "checkpoint/model_folder.h"
#include "compile/plan.h"
#include "core/base/device_name.h"
#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/config/describe.h"
#include "core/config/parse_config.h"
#include "core/device/named_device.h"
#include "nn/models/hf.h"
#include "run/setup.h"

namespace ds {
namespace {

// Returns the number of ranks on one machine.
int local_ranks(int64_t nodes, int ranks) {
  const int machines = std::max(1, static_cast<int>(nodes));
  return (ranks + machines - 1) / machines;
}

// The memory of a rank's device, as far as it is known.
struct OwnMemory {
  // Free bytes of the device.
  std::optional<int64_t> free;
  // Why the free memory of a GPU is not known, or "".
  std::string unknown;
};

// Returns the free memory of the rank's device if it is a GPU, or why it is unknown.
OwnMemory own_memory(const Config& config, int rank, int local) {
  OwnMemory out;
  if (!names_cuda(config.device)) return out;
  try {
    out.free = make_device(config.device, config.tf32, rank % local)->free_memory();
  } catch (const Error& error) {
    out.unknown =
        fmt::format("the memory of device {} is not known here ({})", config.device, error.what());
    if (config.memory_budget.device < 0) out.unknown += ", and memory_budget.device is not set";
  }
  return out;
}

// Returns all limits that a plan must stay within: the budget, the device, and the host with all
// ranks on it.
std::vector<MemoryLimit> limits_of(const Config& config, const Plan& plan, int ranks,
                                   const OwnMemory& own, const HostMemory& has) {
  const MemoryPlan memory = plan.memory;
  const int local = local_ranks(config.nodes, ranks);
  std::vector<MemoryLimit> out = budget_limits(memory, config.memory_budget);
  const bool cuda = names_cuda(config.device);
  if (own.free)
    out.push_back({"memory of device " + config.device, memory.total(Tier::device), *own.free});
  out.push_back(host_limit(bytes_on_host(memory, cuda), local, has));
  return out;
}

// Returns whether the plan stays within every limit.
bool all_hold(const std::vector<MemoryLimit>& limits) {
  return std::ranges::all_of(limits, [](const MemoryLimit& limit) { return limit.holds(); });
}

// Returns the largest ratio of required memory to limit, which is at most 1 if every limit is kept.
double excess(const std::vector<MemoryLimit>& limits) {
  double most = 0;
  for (const MemoryLimit& limit : limits)
    most = std::max(
        most, static_cast<double>(limit.needs) / std::max(1.0, static_cast<double>(limit.has)));
  return most;
}

// A change to the document, or `machines` times as many machines with equally many ranks each.
struct Change {
  std::string name;
  Json patch;
  int machines = 1;
};

Json section(const char* name, Json value) {
  Json out;
  out.set(name, std::move(value));
  return out;
}

Json offload(const ZeroConfig& zero, const char* device) {
  Json out;
  out.set("device", device);
  if (std::string_view(device) == "nvme")
    out.set("nvme_path", zero.nvme_path.empty() ? "." : zero.nvme_path);
  return out;
}

// Returns the possible single changes, the cheapest first.
std::vector<Change> single_changes(const PlanSource& source, const MadePlan& made) {
  const Config& c = made.config;
  std::vector<Change> out;
  if (made.plan.decode && !source.graph)
    out.push_back({"run.sample_tokens 0", section("run", section("sample_tokens", 0))});
  if (c.recompute != "layers")
    out.push_back({R"(recompute "layers")", section("recompute", "layers")});
  if (c.micro_batch > 1 && !source.graph) {
    Json patch;
    patch.set("train_micro_batch_size_per_gpu", 1);
    patch.set("gradient_accumulation_steps", c.micro_batch * c.accumulation);
    out.push_back({"train_micro_batch_size_per_gpu 1", std::move(patch)});
  }
  if (c.zero.stage < 3 && source.ranks > 1)
    out.push_back({"zero_optimization.stage 3", section("zero_optimization", section("stage", 3))});
  auto offloaded = [&](const char* key, const char* device) {
    out.push_back({fmt::format("zero_optimization.{}.device \"{}\"", key, device),
                   section("zero_optimization", section(key, offload(c.zero, device)))});
  };
  if (names_cuda(c.device) && c.zero.optimizer_tier == Tier::device)
    offloaded("offload_optimizer", "cpu");
  if (c.zero.optimizer_tier != Tier::nvme) offloaded("offload_optimizer", "nvme");
  return out;
}

// Combines all compatible changes except the change of run.sample_tokens. `files` includes the
// changes that move state to files.
Change together(const MadePlan& made, const std::vector<Change>& changes, bool files) {
  const Config& c = made.config;
  Change out;
  std::vector<std::string> names;
  for (const Change& change : changes) {
    const bool replaced = change.name.find("offload_optimizer.device \"cpu\"") != change.name.npos;
    const bool moves = change.name.find("nvme") != change.name.npos;
    if (replaced || (moves && !files) || change.name.starts_with("run.")) continue;
    names.push_back(change.name);
    merge_patch(out.patch, change.patch);
  }
  if (files && c.zero.param_tier != Tier::nvme) {
    names.emplace_back("zero_optimization.stage 3 with offload_param.device \"nvme\"");
    std::erase(names, "zero_optimization.stage 3");
    Json zero = section("offload_param", offload(c.zero, "nvme"));
    zero.set("stage", 3);
    merge_patch(out.patch, section("zero_optimization", std::move(zero)));
  }
  out.name = fmt::format("{}", fmt::join(names, ", "));
  return out;
}

// Trials of changed documents, whose plans are all compared with the same machine.
class Trials {
 public:
  Trials(const PlanSource& source, const MadePlan& made, const OwnMemory& own,
         const HostMemory& has)
      : source_(source), made_(made), own_(own), has_(has) {}

  // Returns the limits for the changed document, or nothing if the change makes it invalid.
  std::optional<std::vector<MemoryLimit>> limits(const Change& change) const {
    PlanSource changed = source_;
    merge_patch(changed.document, change.patch);
    try {
      if (change.machines > 1) {
        const auto nodes = std::max<int64_t>(1, made_.config.nodes) * change.machines;
        changed.ranks *= change.machines;
        // The total batch size would contradict the new number of ranks, so it is removed and
        // follows from the other keys.
        Json batch;
        batch.set("train_batch_size", Json());
        batch.set("train_micro_batch_size_per_gpu", made_.config.micro_batch);
        batch.set("gradient_accumulation_steps", made_.config.accumulation);
        batch.set("topology", section("nodes", nodes));
        merge_patch(changed.document, batch);
        merge_patch(changed.document, change.patch);
      }
      const MadePlan plan = make_plan(changed, true);
      return limits_of(plan.config, plan.plan, changed.ranks, own_, has_);
    } catch (const Error&) {
      return std::nullopt;
    }
  }

 private:
  const PlanSource& source_;
  const MadePlan& made_;
  const OwnMemory& own_;
  const HostMemory& has_;
};

// Returns text such as "12.3 GiB of host memory" for the limit with the largest ratio of required
// to available memory.
std::string needs_text(const std::vector<MemoryLimit>& limits) {
  const MemoryLimit* worst = &limits[0];
  for (const MemoryLimit& limit : limits) {
    if (static_cast<double>(limit.needs) * static_cast<double>(worst->has) >
        static_cast<double>(worst->needs) * static_cast<double>(limit.has))
      worst = &limit;
  }
  const bool budget = worst->of.starts_with("memory_budget");
  return gib_text(worst->needs) + (budget ? " per rank" : " of " + worst->of);
}

// Returns a line that names the number of machines on which the plan would fit, or nothing. Doubles
// the number of machines each time, until more machines no longer help: data that every rank holds
// in full does not shrink.
std::optional<std::string> on_machines(const Trials& trials, const PlanSource& source,
                                       const Config& config, Change change) {
  constexpr int kMostRanks = 4096;
  constexpr double kLess = 0.9;
  double before = 0;
  for (change.machines = 2; change.machines <= kMostRanks / source.ranks; change.machines *= 2) {
    const auto limits = trials.limits(change);
    if (!limits) return std::nullopt;
    if (all_hold(*limits)) {
      const int ranks = local_ranks(config.nodes, source.ranks);
      return fmt::format("it fits on {} machines of {} rank{}{}{} ({})",
                         std::max<int64_t>(1, config.nodes) * change.machines, ranks,
                         ranks == 1 ? "" : "s", change.name.empty() ? "" : " with ", change.name,
                         needs_text(*limits));
    }
    const double now = excess(*limits);
    if (change.machines > 2 && now > kLess * before) return std::nullopt;
    before = now;
  }
  return std::nullopt;
}

// Returns lines for the user: the changes that would make the plan fit or, if no single change
// does, what all of them together and more machines would achieve.
std::vector<std::string> what_helps(const PlanSource& source, const MadePlan& made,
                                    const Trials& trials) {
  constexpr size_t kMost = 3;
  std::vector<std::string> out;
  const std::vector<Change> singles = single_changes(source, made);
  std::vector<Change> taken;
  for (const Change& change : singles) {
    const auto limits = trials.limits(change);
    if (!limits) continue;
    taken.push_back(change);
    if (all_hold(*limits) && out.size() < kMost)
      out.push_back(fmt::format("it fits with {} ({})", change.name, needs_text(*limits)));
  }
  if (!out.empty()) return out;
  const Change all = together(made, taken, true);
  auto limits = trials.limits(all);
  if (!limits) return out;
  if (all_hold(*limits)) {
    out.push_back(fmt::format("it fits with {} ({})", all.name, needs_text(*limits)));
  } else {
    out.push_back(fmt::format("with {} it still needs {}", all.name, needs_text(*limits)));
  }
  Change here = together(made, taken, false);
  // Stage 3 is not among the single changes if there is only one rank.
  if (made.config.zero.stage < 3 && source.ranks == 1) {
    merge_patch(here.patch, section("zero_optimization", section("stage", 3)));
    here.name += here.name.empty() ? "zero_optimization.stage 3" : ", zero_optimization.stage 3";
  }
  if (auto machines = on_machines(trials, source, made.config, here)) out.push_back(*machines);
  return out;
}

}  // namespace

MadePlan make_plan(const PlanSource& source, bool trial) {
  MadePlan out;
  out.config = parse_config(source.document, source.ranks);
  if (!trial) log_warnings(out.config);
  fill_from_folder(out.config);
  PlanPrograms programs;
  HfModel model;
  if (!source.graph) {
    model = configured_model(out.config);
    programs = run_programs(out.config, model);
  }
  programs.within_budget = false;
  out.plan = compile_plan(source.graph ? *source.graph : model.graph, out.config, source.rank,
                          source.ranks, Machine{}, !trial, programs);
  return out;
}

bool PlanFit::fits() const { return all_hold(limits); }

std::string PlanFit::text() const {
  std::vector<std::string> parts;
  for (const MemoryLimit& limit : limits) {
    if (fits() || !limit.holds()) parts.push_back(limit_text(limit));
  }
  if (fits() && limits.back().available >= 0 && limits.back().available < limits.back().needs)
    parts.emplace_back("other programs must free this memory first");
  if (!unknown.empty()) parts.push_back(unknown);
  parts.insert(parts.end(), help.begin(), help.end());
  return fmt::format("{}: {}", fits() ? "fits" : "does not fit", fmt::join(parts, "; "));
}

Json PlanFit::json() const {
  Json::Array bounds, changes;
  for (const MemoryLimit& limit : limits) {
    Json one;
    one.set("of", limit.of);
    one.set("needs", limit.needs);
    one.set("has", limit.has);
    one.set("available", limit.available < 0 ? Json() : Json(limit.available));
    one.set("ranks", limit.ranks);
    bounds.push_back(std::move(one));
  }
  for (const std::string& change : help) changes.emplace_back(change);
  Json out;
  out.set("fits", fits());
  out.set("text", text());
  out.set("limits", std::move(bounds));
  out.set("unknown", unknown);
  out.set("help", std::move(changes));
  return out;
}

PlanFit plan_fit(const PlanSource& source, const MadePlan& made) {
  // The machine's memory is determined once, so that all trials compare with the same numbers.
  HostMemory has = host_memory();
  // Assumes that all ranks of this machine would be in the control groups of this process, as in a
  // container.
  for (GroupLimit& group : has.groups) group.ranks = local_ranks(made.config.nodes, source.ranks);
  const OwnMemory own =
      own_memory(made.config, source.rank, local_ranks(made.config.nodes, source.ranks));
  PlanFit out;
  out.unknown = own.unknown;
  out.limits = limits_of(made.config, made.plan, source.ranks, own, has);
  if (!out.fits()) out.help = what_helps(source, made, Trials(source, made, own, has));
  return out;
}

}  // namespace ds
