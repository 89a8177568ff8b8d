// Problem: who plans wants to know whether the plan runs here, and if not, what to change.
// Invariant: the bounds are those that an engine checks before it takes memory
// (compile/memory_fit.h), and what would help is not a rule of thumb: each change was planned, and
// is named with the bytes of its plan.
#include "run/plan_fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "checkpoint/model_folder.h"
#include "core/base/device_name.h"
#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/config/describe.h"
#include "core/device/named_device.h"
#include "nn/models/hf.h"
#include "run/setup.h"

namespace ds {
namespace {

// Ranks of one machine.
int local_ranks(const Config& config, int ranks) {
  const auto nodes = std::max(1, static_cast<int>(config.nodes));
  return (ranks + nodes - 1) / nodes;
}

// What the machine has beside host memory.
struct OwnMemory {
  std::optional<int64_t> free;  // of the device
  std::string unknown;
};

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

std::vector<MemoryLimit> limits_of(const Config& config, const Plan& plan, int ranks,
                                   const OwnMemory& own, const HostMemory& has) {
  const MemoryPlan memory = memory_plan(plan);
  const int local = local_ranks(config, ranks);
  std::vector<MemoryLimit> out = budget_limits(memory, config.memory_budget);
  const bool cuda = names_cuda(config.device);
  if (own.free)
    out.push_back({"memory of device " + config.device, memory.total(Tier::device), *own.free});
  out.push_back(host_limit(bytes_on_host(memory, cuda), local, has));
  return out;
}

bool all_hold(const std::vector<MemoryLimit>& limits) {
  return std::all_of(limits.begin(), limits.end(),
                     [](const MemoryLimit& limit) { return limit.holds(); });
}

// By how much the worst bound is passed; at most 1 where all hold.
double excess(const std::vector<MemoryLimit>& limits) {
  double most = 0;
  for (const MemoryLimit& limit : limits)
    most = std::max(
        most, static_cast<double>(limit.needs) / std::max(1.0, static_cast<double>(limit.has)));
  return most;
}

// A change of the document, or more machines of as many ranks.
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

Json offload(const Config& config, const char* device) {
  Json out;
  out.set("device", device);
  if (std::string_view(device) == "nvme")
    out.set("nvme_path", config.zero.nvme_path.empty() ? "." : config.zero.nvme_path);
  return out;
}

// What can be changed by one key, the cheapest first.
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
                   section("zero_optimization", section(key, offload(c, device)))});
  };
  if (names_cuda(c.device) && c.zero.optimizer_tier == Tier::device)
    offloaded("offload_optimizer", "cpu");
  if (c.zero.optimizer_tier != Tier::nvme) offloaded("offload_optimizer", "nvme");
  return out;
}

// All of them that go together; files: also what moves state there.
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
    Json zero = section("offload_param", offload(c, "nvme"));
    zero.set("stage", 3);
    merge_patch(out.patch, section("zero_optimization", std::move(zero)));
  }
  out.name = fmt::format("{}", fmt::join(names, ", "));
  return out;
}

// Plans of changed documents, against the same machine.
class Trials {
 public:
  Trials(const PlanSource& source, const MadePlan& made, const OwnMemory& own,
         const HostMemory& has)
      : source_(source), made_(made), own_(own), has_(has) {}

  // None: the document refuses the change.
  std::optional<std::vector<MemoryLimit>> limits(const Change& change) const {
    PlanSource changed = source_;
    merge_patch(changed.document, change.patch);
    try {
      if (change.machines > 1) {
        const auto nodes = std::max<int64_t>(1, made_.config.nodes) * change.machines;
        changed.ranks *= change.machines;
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

// "12.3 GiB of host memory": of the bound that is passed, or comes closest.
std::string needs_text(const std::vector<MemoryLimit>& limits) {
  const MemoryLimit* worst = &limits[0];
  for (const MemoryLimit& limit : limits) {
    if (static_cast<double>(limit.needs) * static_cast<double>(worst->has) >
        static_cast<double>(worst->needs) * static_cast<double>(limit.has))
      worst = &limit;
  }
  const bool budget = worst->of.starts_with("memory_budget");
  return gib_text(worst->needs) + (budget ? " a rank" : " of " + worst->of);
}

// More machines, twice as many each time, until that helps no more.
std::optional<std::string> on_machines(const Trials& trials, const PlanSource& source,
                                       const Config& config, Change change) {
  constexpr int kMostRanks = 4096;
  constexpr double kLess = 0.9;
  double before = 0;
  for (change.machines = 2; change.machines <= kMostRanks / source.ranks; change.machines *= 2) {
    const auto limits = trials.limits(change);
    if (!limits) return std::nullopt;
    if (all_hold(*limits)) {
      const int ranks = local_ranks(config, source.ranks);
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
  if (made.config.zero.stage < 3 && source.ranks == 1) {  // of one rank the stage was no change
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
    parts.emplace_back("which other programs have to leave first");
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
  HostMemory has = host_memory();
  // As in a container: all ranks of this machine would be in the control groups of this process.
  for (GroupLimit& group : has.groups) group.ranks = local_ranks(made.config, source.ranks);
  const OwnMemory own =
      own_memory(made.config, source.rank, local_ranks(made.config, source.ranks));
  PlanFit out;
  out.unknown = own.unknown;
  out.limits = limits_of(made.config, made.plan, source.ranks, own, has);
  if (!out.fits()) out.help = what_helps(source, made, Trials(source, made, own, has));
  return out;
}

}  // namespace ds
