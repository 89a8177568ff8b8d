// Which parameters are trained: by calls between steps, and as a checkpoint says.
#include <algorithm>

#include "checkpoint/agree.h"
#include "core/base/error.h"
#include "engine/core.h"

namespace ds {

// A bucket has states for the first time: its master is the parameter, the others are zero.
void EngineCore::begin_states(BucketId bucket) {
  const BucketState& s = zero().buckets[bucket];
  std::vector<float> block(1 << 16);
  auto pieces = [&](auto&& body) {
    for (int64_t at = 0; at < held(bucket); at += static_cast<int64_t>(block.size()))
      body(at, std::min(static_cast<int64_t>(block.size()), held(bucket) - at));
  };
  for (const StateRef& state : s.states) {
    pieces([&](int64_t at, int64_t n) { transfer_state(state.buffer, at, n, nullptr, block.data()); });
  }
  if (s.master.buffer == s.param.buffer) return;
  pieces([&](int64_t at, int64_t n) {
    transfer_state(s.param.buffer, s.param.first + at, n, block.data(), nullptr);
    transfer_state(s.master.buffer, s.master.first + at, n, nullptr, block.data());
  });
}

void EngineCore::freeze(std::span<const int32_t> params, int32_t frozen) {
  guarded([] {});
  ensure_started();
  IdVector<ParamId, char> wanted = zero().frozen;
  agree(comm_, "ds_engine_freeze", [&] {
    begin_change("ds_engine_freeze");
    if (state_kinds_.size() == 1) raise(DS_ERROR_STATE, "an engine for inference alone trains no parameter");
    require(params.data() || params.empty(), "params must not be NULL with params_count {}", params.size());
    require(frozen == 0 || frozen == 1, "frozen must be 0 or 1, got {}", frozen);
    for (ParamId p : ids_of<ParamId>(params)) {
      check_param(p);
      wanted[p] = static_cast<char>(frozen);
    }
  });
  compare_frozen(wanted);
  set_trained(wanted, own_updates());
  freeze_called_ = true;
}

// Before anything changes: a plan of other parameters than the other ranks' is of no use.
void EngineCore::compare_frozen(const IdVector<ParamId, char>& mine) {
  std::vector<char> all(mine.size() * static_cast<size_t>(comm_.size()));
  comm_.all_gather(mine.data(), all.data(), mine.size(), "frozen parameters");
  for (size_t i = mine.size(); i < all.size(); ++i) {
    size_t p = i % mine.size(), rank = i / mine.size();
    if (all[i] == all[p]) continue;
    raise(DS_ERROR_INVALID_ARGUMENT, "ds_engine_freeze: parameter '{}' would be {} on rank 0, {} on rank {}",
          names_[p], all[p] ? "frozen" : "trained", all[i] ? "frozen" : "trained", rank);
  }
}

// Updates that each parameter has had in this run. Only those of trained parameters grow.
IdVector<ParamId, int64_t> EngineCore::own_updates() const {
  IdVector<ParamId, int64_t> updates = updates_;
  updates.resize(names_.size(), 0);
  for (ParamId p : updates.ids()) {
    if (!zero().frozen[p]) updates[p] = scalars_.step - zero().missed[p];
  }
  return updates;
}

// updates: what own_updates() is to be. Collective.
void EngineCore::set_trained(const IdVector<ParamId, char>& frozen, IdVector<ParamId, int64_t> updates) {
  std::vector<BucketId> without_states;
  for (BucketId b : zero().buckets.ids()) {
    if (!zero().buckets[b].grad.empty()) continue;
    without_states.push_back(b);
    for (const ParamPlace& p : zero().layout.buckets[b].params) updates[p.param] = 0;
  }
  IdVector<ParamId, int64_t> missed(updates.size(), 0);
  for (ParamId p : missed.ids()) missed[p] = frozen[p] ? 0 : scalars_.step - updates[p];
  if (frozen != zero().frozen || missed != zero().missed) {
    guarded([&] { settle(); });
    recompile(frozen, missed);
    guarded([&] {
      for (BucketId b : without_states) {
        if (!zero().buckets[b].grad.empty()) begin_states(b);
      }
    });
    forget_text();
  }
  updates_ = std::move(updates);
}

// Those of a checkpoint's run, by parameter.
IdVector<ParamId, int64_t> EngineCore::updates_of(const CheckpointInfo& saved) const {
  std::map<std::string_view, int64_t> late(saved.updates.begin(), saved.updates.end());
  std::vector<int64_t> out;
  for (const std::string& name : names_) {
    auto it = late.find(name);
    out.push_back(it == late.end() ? saved.step : it->second);
  }
  return out;
}

std::vector<std::pair<std::string, int64_t>> EngineCore::named_updates() const {
  std::vector<std::pair<std::string, int64_t>> out;
  IdVector<ParamId, int64_t> updates = own_updates();
  for (ParamId p : updates.ids()) {
    if (updates[p] != scalars_.step) out.emplace_back(names_[p], updates[p]);
  }
  return out;
}

std::vector<std::string> EngineCore::frozen_names() const {
  std::vector<std::string> out;
  for (ParamId p : zero().frozen.ids()) {
    if (zero().frozen[p]) out.push_back(names_[p]);
  }
  return out;
}

// By parameter, as ZeroPlan::frozen.
IdVector<ParamId, char> EngineCore::frozen_of(const CheckpointInfo& saved) const {
  std::set<std::string_view> frozen(saved.frozen.begin(), saved.frozen.end());
  std::vector<char> out;
  for (const std::string& name : names_) out.push_back(frozen.count(name) != 0);
  return out;
}

// The first parameter that is frozen either here or in the checkpoint; "" without one.
std::string EngineCore::frozen_difference(const CheckpointInfo& saved) const {
  IdVector<ParamId, char> there = frozen_of(saved);
  for (ParamId p : names_.ids()) {
    if (there[p] == zero().frozen[p]) continue;
    return fmt::format("parameter '{}' is {} there, {} here", names_[p], there[p] ? "frozen" : "trained",
                       there[p] ? "trained" : "frozen");
  }
  return "";
}

// Whether the frozen parameters of the checkpoint are those of this configuration and calls after it.
bool EngineCore::follows_frozen(const CheckpointInfo& saved) const {
  const Json* values = saved.config.find("config");
  const Json* patterns = values ? values->find("frozen_parameters") : nullptr;
  Json mine = Json::Array(config_.frozen.begin(), config_.frozen.end());
  return !freeze_called_ && patterns && patterns->dump() == mine.dump();
}

// Freezes and thaws as calls had done before the checkpoint was saved, so that the run goes on.
void EngineCore::follow_frozen(const CheckpointInfo& saved) {
  if (follows_frozen(saved)) set_trained(frozen_of(saved), own_updates());
}

}  // namespace ds
