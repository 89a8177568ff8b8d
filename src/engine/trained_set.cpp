// Problem: parameters may be frozen and trained again between steps and by loading a checkpoint.
// Each change alters the plan, because frozen parameters have no gradients and parameters trained
// for the first time need states. Bias corrections must count the updates of each parameter
// separately.
// Invariant: updates_ has the number of updates of each frozen parameter. The number of a trained
// parameter is control_.updates() less the updates that it has missed: its entry in `missed` and
// the updates that have left it out since. All ranks compare their requests before anything
// changes, because their plans must stay equal. A change compiles a plan, keeps the states that
// exist and sets initial values for new states.
#include "engine/trained_set.h"

#include <fmt/core.h>

#include <map>
#include <set>
#include <string_view>

#include "checkpoint/agree.h"
#include "core/base/error.h"
#include "nn/adapter_keys.h"
#include "nn/adapter_names.h"
#include "optim/optimizer.h"
#include "optim/param_groups.h"
#include "optim/rate_rules.h"

namespace ds {

void TrainedSet::freeze(std::span<const int32_t> params, int32_t frozen) {
  runtime_.guarded([] {});
  store_.owner().require_started();
  IdVector<ParamId, char> wanted = store_.zero().trained.frozen;
  agree(runtime_.comm(), "ds_engine_freeze", [&] {
    store_.owner().begin_change("ds_engine_freeze");
    require(params.data() || params.empty(), "params must not be NULL with params_count {}",
            params.size());
    require(frozen == 0 || frozen == 1, "frozen must be 0 or 1, got {}", frozen);
    for (ParamId p : ids_of<ParamId>(params)) {
      store_.check_param(p);
      wanted[p] = static_cast<char>(frozen);
    }
  });
  compare(wanted);
  check_variance(wanted);
  set(wanted, store_.zero().trained.begun, own_updates());
  called_ = true;
}

int32_t TrainedSet::add_group(std::span<const int32_t> params, const Json& values) {
  runtime_.guarded([] {});
  store_.owner().require_started();
  TrainedParams next = store_.zero().trained;
  const auto number = static_cast<int32_t>(control_.groups().size());
  ParamGroup group;
  agree(runtime_.comm(), "ds_engine_group_add", [&] {
    store_.owner().begin_change("ds_engine_group_add");
    require(params.data() && !params.empty(),
            "params must name at least one parameter, got {} of them", params.size());
    group = read_param_group("options", values, runtime_.config().optimizer, false);
    check_group(runtime_.config(), group, "options");
    for (ParamId p : ids_of<ParamId>(params)) {
      store_.check_param(p);
      next.group[p] = number;
    }
  });
  std::string mine = param_group_json(runtime_.config().optimizer, group).dump();
  for (ParamId p : next.group.ids()) {
    if (next.group[p] == number) mine += fmt::format(" {}", store_.param_names()[p]);
  }
  agree_equal(runtime_.comm(), "ds_engine_group_add: options and parameters", mine);
  recompile(next);
  control_.add_group(group);
  store_.changed();
  return number;
}

// Throws before anything changes if ranks would train different parameters: their plans would
// differ.
void TrainedSet::compare(const IdVector<ParamId, char>& mine) {
  std::vector<char> all(mine.size() * static_cast<size_t>(runtime_.comm().size()));
  runtime_.comm().all_gather(mine.data(), all.data(), mine.size(), "frozen parameters");
  for (size_t i = mine.size(); i < all.size(); ++i) {
    size_t p = i % mine.size(), rank = i / mine.size();
    if (all[i] == all[p]) continue;
    raise(DS_ERROR_INVALID_ARGUMENT,
          "ds_engine_freeze: parameter '{}' would be {} on rank 0, {} on rank {}",
          TensorName(store_.param_names()[p]), all[p] ? "frozen" : "trained",
          all[i] ? "frozen" : "trained", RankNumber(rank));
  }
}

// In some forms of a step the variance keeps the value of earlier updates. A parameter without any
// update would have a variance of 0, and its step would be unbounded.
void TrainedSet::check_variance(const IdVector<ParamId, char>& frozen) const {
  const OptimizerConfig& config = runtime_.config().optimizer;
  if (optimizer_of(config).form(config, control_.updates()) == StepForm::reduced) return;
  const IdVector<ParamId, int64_t> updates = own_updates();
  for (ParamId p : frozen.ids()) {
    if (frozen[p] || !store_.zero().trained.frozen[p] || updates[p] > 0) continue;
    raise(DS_ERROR_STATE,
          "ds_engine_freeze: parameter '{}' has had no update, and {} keeps the variance in the "
          "next update, number {}, so its variance would be 0; train the parameter earlier, or "
          "begin with an update that reduces gradients",
          TensorName(store_.param_names()[p]), config.type, control_.updates() + 1);
  }
}

IdVector<ParamId, int64_t> TrainedSet::own_updates() const {
  IdVector<ParamId, int64_t> updates = updates_;
  updates.resize(store_.param_names().size(), 0);
  for (ParamId p : updates.ids()) {
    if (!store_.zero().trained.frozen[p])
      updates[p] = control_.updates() - store_.zero().trained.missed[p] -
                   control_.left_out().count(p.number());
  }
  return updates;
}

void TrainedSet::set(const IdVector<ParamId, char>& frozen, const IdVector<ParamId, char>& begun,
                     IdVector<ParamId, int64_t> updates) {
  const TrainedParams& now = store_.zero().trained;
  TrainedParams next{frozen, now.begun, IdVector<ParamId, int64_t>(updates.size(), 0), now.group};
  for (ParamId p : updates.ids()) {
    if (!frozen[p] || begun[p]) next.begun[p] = 1;
    if (!now.begun[p]) updates[p] = 0;
    if (!frozen[p]) next.missed[p] = control_.updates() - updates[p];
  }
  // From here on next.missed counts them.
  control_.forget_left_out();
  if (next != now) {
    recompile(next);
    store_.changed();
  }
  updates_ = std::move(updates);
}

void TrainedSet::recompile(const TrainedParams& next) {
  runtime_.guarded([&] { runtime_.settle(); });
  const TrainedParams before = store_.zero().trained;
  IdVector<BucketId, char> had_states;
  for (BucketId b : store_.zero().buckets.ids()) had_states.push_back(store_.zero().has_states(b));
  recompile_(next);
  runtime_.guarded([&] {
    for (BucketId b : had_states.ids()) {
      if (!had_states[b] && store_.zero().has_states(b)) store_.values().begin(b);
    }
    for (ParamId p : next.frozen.ids()) {
      if (next.begun[p] && !before.begun[p] && had_states[store_.bucket_of(p)])
        store_.values().begin(p);
      if (next.frozen[p] && !before.frozen[p]) store_.own_states().forget_errors(p);
    }
    // forget_rearranged() is needed if the trained tensors or their groups change: the layout of
    // the states that it drops depends on which tensors are trained, and their values include the
    // groups' rates.
    if (next.frozen == before.frozen && next.group == before.group) return;
    store_.own_states().forget_rearranged();
    if (optimizer_of(runtime_.config().optimizer).steps_locally()) store_.renew_params();
  });
}

// Returns the number of updates that each parameter has had according to the checkpoint.
IdVector<ParamId, int64_t> TrainedSet::updates_of(const CheckpointInfo& saved) const {
  std::map<std::string_view, int64_t> late(saved.updates.begin(), saved.updates.end());
  std::vector<int64_t> out;
  for (const std::string& name : store_.param_names()) {
    auto it = late.find(name);
    out.push_back(it == late.end() ? saved.updates_taken() : it->second);
  }
  return out;
}

std::vector<std::pair<std::string, int64_t>> TrainedSet::late_updates() const {
  std::vector<std::pair<std::string, int64_t>> out;
  IdVector<ParamId, int64_t> updates = own_updates();
  for (ParamId p : updates.ids()) {
    if (updates[p] != control_.updates()) out.emplace_back(store_.param_names()[p], updates[p]);
  }
  return out;
}

std::vector<std::string> TrainedSet::frozen_names() const {
  std::vector<std::string> out;
  for (ParamId p : store_.zero().trained.frozen.ids()) {
    if (store_.zero().trained.frozen[p]) out.push_back(store_.param_names()[p]);
  }
  return out;
}

std::vector<std::string> TrainedSet::frozen_names_with_states() const {
  std::vector<std::string> out;
  const TrainedParams& trained = store_.zero().trained;
  for (ParamId p : trained.frozen.ids()) {
    if (trained.frozen[p] && trained.begun[p]) out.push_back(store_.param_names()[p]);
  }
  return out;
}

// Returns which parameters the checkpoint says are frozen, as in TrainedParams::frozen.
IdVector<ParamId, char> TrainedSet::frozen_of(const CheckpointInfo& saved) const {
  std::set<std::string_view> frozen(saved.frozen.begin(), saved.frozen.end());
  std::vector<char> out;
  for (const std::string& name : store_.param_names()) {
    // A checkpoint may lack adapters that are frozen here.
    const std::string_view adapter = split_adapter_param(name).adapter;
    const bool other = !adapter.empty() && adapter != kOwnAdapter;
    out.push_back(other || frozen.count(name) != 0);
  }
  return out;
}

// Returns which parameters have states in the checkpoint: those that are trained there, and the
// frozen ones that it lists.
IdVector<ParamId, char> TrainedSet::begun_of(const CheckpointInfo& saved) const {
  std::set<std::string_view> kept(saved.frozen_with_states.begin(), saved.frozen_with_states.end());
  IdVector<ParamId, char> out = frozen_of(saved);
  for (ParamId p : out.ids()) out[p] = !out[p] || kept.count(store_.param_names()[p]) != 0;
  return out;
}

std::string TrainedSet::difference(const CheckpointInfo& saved) const {
  IdVector<ParamId, char> there = frozen_of(saved);
  for (ParamId p : store_.param_names().ids()) {
    if (there[p] == store_.zero().trained.frozen[p]) continue;
    return fmt::format("parameter '{}' is {} there, {} here", store_.param_names()[p],
                       there[p] ? "frozen" : "trained", there[p] ? "trained" : "frozen");
  }
  return "";
}

// Returns whether this engine should adopt the checkpoint's frozen parameters: both configurations
// list the same frozen parameters, and no call on this engine has changed them.
bool TrainedSet::follows(const CheckpointInfo& saved) const {
  const Json* values = saved.config.find("config");
  const Json* patterns = values ? values->find("frozen_parameters") : nullptr;
  Json mine = Json::Array(runtime_.config().frozen.begin(), runtime_.config().frozen.end());
  return !called_ && patterns && patterns->dump() == mine.dump();
}

void TrainedSet::follow(const CheckpointInfo& saved) {
  if (follows(saved)) set(frozen_of(saved), begun_of(saved), own_updates());
}

}  // namespace ds
