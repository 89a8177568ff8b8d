// The calls that a random delegate host makes between its steps. They include wrong calls, which
// must be refused.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <utility>

#include "core/base/error.h"
#include "support/random_host.h"

namespace ds::test {

void RandomHost::between_steps() {
  for (int64_t n = dice_.below(3); n > 0; --n) {
    if (dice_.one_in(2)) evaluate();
    if (dice_.one_in(2)) touch_state();
  }
}

// Gathers and releases parameters; often repeats some or all of the calls with which the last step
// began.
void RandomHost::evaluate() {
  Calls calls;
  Place place = start();
  int64_t length = dice_.below(20);
  if (dice_.one_in(2)) {
    for (const Call& c : calls_) {
      bool lease = c.kind == Call::Kind::gather || c.kind == Call::Kind::release;
      if (!lease || static_cast<int64_t>(calls.size()) >= length) break;
      add(calls, place, c);
    }
  } else {
    // At this place in a step, no more gradients are handed over.
    place.micro = micros_;
    soup(calls, place, length);
  }
  release_some(calls, place, true);
  const bool announced = dice_.one_in(2);
  if (announced) engine_.evaluate(true);
  for (const Call& c : calls) {
    perform(c);
    if (announced && dice_.one_in(8))
      refused("a backward", "needs training", [&] { engine_.end_micro_step(); });
    if (dice_.one_in(8)) try_wrong_calls();
    bool leased =
        std::any_of(place_.leases.begin(), place_.leases.end(), [](int n) { return n > 0; });
    if (!leased && !announced && dice_.one_in(6)) write_parts();
  }
  if (announced) engine_.evaluate(false);
}

void RandomHost::touch_state() {
  int64_t what = dice_.below(8);
  if (std::getenv("DS_SHOW_CALLS") && comm_.rank() == 0)
    fmt::print(stderr, "step {} touch {}\n", steps_, what);
  if (what == 0) save();
  if (what == 1 && !saved_.empty()) load();
  if (what == 2) freeze_some();
  if (what == 3) write_some();
  if (what == 4) check_state();
  if (what == 5) check_gradients("between steps");
  if (what == 6) write_parts();
  if (what == 7) change_groups();
}

// Adds a group, or changes a number.
void RandomHost::change_groups() {
  const OptimizerConfig& optimizer = case_.config.optimizer;
  if (groups_.size() < 5 && dice_.one_in(3)) {
    std::vector<int32_t> params{
        static_cast<int32_t>(dice_.below(static_cast<int64_t>(numel_.size())))};
    for (int32_t p = 0; p < static_cast<int32_t>(numel_.size()); ++p) {
      if (p != params[0] && dice_.one_in(3)) params.push_back(p);
    }
    const std::pair<std::string, double> number = random_number(optimizer, dice_);
    Json values = Json::Object();
    if (number.first.starts_with("beta")) {
      values.set("betas", Json(Json::Array{0.625, 0.96875}));
      groups_.add(params, {{"beta1", 0.625}, {"beta2", 0.96875}});
    } else {
      values.set(number.first, number.second);
      groups_.add(params, {number});
    }
    int32_t group = engine_.trained().add_group(params, values);
    if (group != static_cast<int32_t>(groups_.size()) - 1)
      fail(fmt::format("group {} was added", group));
    follow_groups();
  } else {
    set_number();
  }
}

void RandomHost::set_number() {
  const auto [name, value] = random_number(case_.config.optimizer, dice_);
  std::optional<size_t> group;
  if (dice_.one_in(2))
    group = static_cast<size_t>(dice_.below(static_cast<int64_t>(groups_.size())));
  const bool back = dice_.one_in(4);
  std::string path = group ? fmt::format("param_groups[{}].{}", *group, name) : name;
  engine_.set(path, back ? std::nan("") : value);
  groups_.set(group, name, back ? std::nullopt : std::optional(value));
  if (!back && engine_.control().get(path) != value) fail(path + " is not what was set");
  follow_groups();
}

void RandomHost::follow_groups() {
  for (size_t p = 0; p < numel_.size(); ++p) state_.set_group(p, groups_.of(p));
}

void RandomHost::save() {
  std::string path = engine_.checkpoints().save(folder_ + fmt::format("/{}", saved_.size()));
  saved_.push_back({path, state_, steps_, groups_.numbers()});
}

void RandomHost::load() {
  const Saved& s = saved_[static_cast<size_t>(dice_.below(static_cast<int64_t>(saved_.size())))];
  engine_.checkpoints().load(s.path);
  state_ = s.state;
  steps_ = s.steps;
  groups_.load(s.numbers);
  follow_groups();
  for (size_t p = 0; p < frozen_.size(); ++p) {
    frozen_[p] = engine_.trained().is_frozen(ParamId(p));
    trained_[p] = trained_[p] || !frozen_[p];
  }
}

void RandomHost::freeze_some() {
  std::vector<int32_t> params;
  bool freeze = dice_.one_in(2);
  auto trained = std::count(frozen_.begin(), frozen_.end(), 0);
  for (size_t p = 0; p < frozen_.size(); ++p) {
    if (!dice_.one_in(3) || (freeze && trained <= 1 && !frozen_[p])) continue;
    trained -= freeze && !frozen_[p];
    params.push_back(static_cast<int32_t>(p));
    frozen_[p] = freeze;
    trained_[p] = trained_[p] || !freeze;
  }
  engine_.trained().freeze(params, freeze ? 1 : 0);
  any_gradient_ = false;
}

// Draws the kind of a tensor. A parameter that was never trained has no optimizer states.
std::string RandomHost::random_kind(int32_t param) {
  std::vector<std::string> kinds = state_.kinds();
  if (!trained_[static_cast<size_t>(param)]) return kinds[0];
  return kinds[static_cast<size_t>(dice_.below(static_cast<int64_t>(kinds.size())))];
}

// Draws values that bf16 represents exactly. Second moments are neither negative nor small relative
// to first moments.
std::vector<float> RandomHost::values_for(int32_t param, const std::string& kind) const {
  std::vector<float> values;
  // The optimizer takes the square root of these states.
  const bool squares = kind == "exp_avg_sq" || kind == "sum";
  for (int64_t e = 0; e < numel_[static_cast<size_t>(param)]; ++e) {
    int64_t x = (e * 3 + call_) % 17 - 8;
    values.push_back(static_cast<float>(squares ? x + 9 : x) / 8);
  }
  return values;
}

void RandomHost::write_some() {
  auto param = static_cast<int32_t>(dice_.below(static_cast<int64_t>(numel_.size())));
  std::string kind = random_kind(param);
  std::vector<float> values = values_for(param, kind);
  engine_.store().write_tensor(ParamId(param), kind, values);
  state_.set(static_cast<size_t>(param), kind, values);
}

// Writes local parts of a tensor: all ranks new values, or some ranks the values that they already
// have.
void RandomHost::write_parts() {
  auto param = static_cast<int32_t>(dice_.below(static_cast<int64_t>(numel_.size())));
  std::string kind = random_kind(param);
  bool all = dice_.one_in(2);
  int64_t writers = dice_.below(int64_t{1} << comm_.size());
  // Checks the parts before they change.
  read(param, kind);
  auto [first, count] = engine_.store().local_range(ParamId(param));
  std::vector<float> whole = values_for(param, kind), part;
  part = all ? std::vector<float>(whole.begin() + first, whole.begin() + first + count)
             : engine_.store().read_local(ParamId(param), kind);
  bool mine = all || (writers >> comm_.rank() & 1) != 0;
  if (mine) engine_.store().write_local(ParamId(param), kind, part);
  if (all) state_.set(static_cast<size_t>(param), kind, whole);
  if (kind != "master") return;
  if (mine) try_unrefreshed(param);
  engine_.store().refresh_params();
}

// Writes mean gradients, whole or by local parts.
void RandomHost::edit_gradient() {
  auto param = static_cast<int32_t>(dice_.below(static_cast<int64_t>(numel_.size())));
  size_t p = static_cast<size_t>(param);
  if (frozen_[p]) return;
  std::vector<float> mean = values_for(param, "grad");
  auto [first, count] = engine_.store().local_range(ParamId(param));
  std::vector<float> part(mean.begin() + first, mean.begin() + first + count);
  bool whole = dice_.one_in(2);
  auto write = [&] {
    whole ? engine_.store().write_tensor(ParamId(param), "grad", mean)
          : engine_.store().write_local(ParamId(param), "grad", part);
  };
  if (case_.config.zero.optimizer_tier == Tier::nvme)
    return refused("writing a gradient on nvme", case_.names[p], write, DS_ERROR_UNSUPPORTED);
  write();
  float scale = 1.0f / static_cast<float>(weights());
  for (size_t e = 0; e < mean.size(); ++e) sum_[p][e] = static_cast<double>(mean[e] / scale);
}

// --- calls that must be refused and change nothing ---

void RandomHost::refused(const char* what, const std::string& part,
                         const std::function<void()>& call, ds_status status) {
  try {
    call();
  } catch (const Error& error) {
    bool right =
        error.status() == status && std::string(error.what()).find(part) != std::string::npos;
    if (!right) fail(fmt::format("{}: {}", what, error.what()));
    return;
  }
  fail(fmt::format("{} was accepted", what));
}

// Makes calls that need a refresh, because this rank has written masters. They must be refused on
// this rank alone, without communication.
void RandomHost::try_unrefreshed(int32_t param) {
  const char* part = "ds_engine_refresh must be called";
  refused("gathering before a refresh", part, [&] { engine_.gather(std::vector{ParamId(param)}); });
  refused("reading a part before a refresh", part,
          [&] { engine_.store().read_local(ParamId(param), "param"); });
  if (case_.config.by_tokens()) engine_.set("micro_weight", 1);
  refused("a step before a refresh", part, [&] { engine_.end_micro_step(); });
}

void RandomHost::try_wrong_calls() {
  auto param = static_cast<int32_t>(dice_.below(static_cast<int64_t>(numel_.size())));
  size_t p = static_cast<size_t>(param);
  std::vector<ParamId> many(static_cast<size_t>(place_.leases[p] + 1), ParamId(param));
  refused("releasing too often", case_.names[p], [&] { engine_.release(many); });
  std::vector<float> values(static_cast<size_t>(numel_[p]));
  bool begun =
      place_.micro > 0 || std::count(place_.given.begin(), place_.given.end(), 1) > 0 || viewed_;
  auto held = std::find_if(place_.leases.begin(), place_.leases.end(), [](int n) { return n > 0; });
  if (begun)
    refused("saving in a step", "inside a step",
            [&] { engine_.checkpoints().save(folder_ + "/never"); });
  if (place_.given[p])
    refused("a second gradient", case_.names[p], [&] {
      engine_.grad_ready(ParamId(param), {values.data(), DS_DTYPE_F32, numel_[p]});
    });
  if (!begun && held == place_.leases.end()) return;
  std::string part = begun ? "inside a step" : case_.names[held - place_.leases.begin()];
  refused("writing", part, [&] { engine_.store().write_tensor(ParamId(param), "master", values); });
  refused("freezing", part, [&] { engine_.trained().freeze({&param, 1}, 1); });
  refused("adding a group", part, [&] {
    engine_.trained().add_group({&param, 1}, Json(Json::Object()));
  });
  refused("refreshing", part, [&] { engine_.store().refresh_params(); });
  auto [first, count] = engine_.store().local_range(ParamId(param));
  values.resize(static_cast<size_t>(count));
  refused("writing a part", part,
          [&] { engine_.store().write_local(ParamId(param), "master", values); });
}

}  // namespace ds::test
