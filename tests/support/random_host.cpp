#include "support/random_host.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <numeric>
#include <stdexcept>

#include "core/base/error.h"
#include "core/program/granules.h"
#include "support/models.h"

namespace ds::test {
namespace {

constexpr int64_t kSteps = 7;

// The largest magnitude of every granule's gradient.
int64_t top_of(const Config& c) { return c.zero.quantized_gradients && c.zero.gradient_bits == 8 ? 127 : 7; }

void choose_memory(Config& c, Dice& dice) {
  c.emulate_tiers = dice.one_in(2);
  c.zero.nvme_path = std::string(DS_BINARY_DIR) + "/scratch";
  if (dice.one_in(2)) c.zero.optimizer_tier = dice.pick({Tier::host, Tier::nvme});
  if (c.zero.stage == 3 && dice.one_in(2)) c.zero.param_tier = dice.pick({Tier::host, Tier::nvme});
  c.zero.reduce_bucket_size = dice.pick<int64_t>({256, 1024, 3000, 1 << 20});
  c.zero.param_persistence_threshold = dice.pick<int64_t>({0, 0, 300, 1 << 20});
  c.zero.max_reuse_distance = dice.pick<int64_t>({0, 0, 1500, 1 << 20});
  c.zero.prefetch_bucket_size = dice.pick<int64_t>({0, 1024, 1 << 20});
  if (dice.one_in(4)) c.zero.max_live_parameters = dice.pick<int64_t>({2000, 5000});
  c.zero.sub_group_size = dice.pick<int64_t>({4096, 1 << 20});
  c.zero.buffer_count = static_cast<int>(dice.pick({1, 4}));
  c.zero.overlap_comm = !dice.one_in(4);
}

void choose_codes(Config& c, Dice& dice) {
  if (c.zero.stage == 3) c.zero.quantized_weights = dice.one_in(3);
  if (c.zero.stage < 2 || !dice.one_in(2)) return;
  c.zero.quantized_gradients = true;
  c.zero.gradient_bits = static_cast<int>(dice.pick({4, 8}));
  c.zero.error_feedback = dice.one_in(2);
  c.zero.err_reset = dice.pick<int64_t>({2, 1024});
}

}  // namespace

RandomCase random_case(uint64_t seed) {
  RandomCase out;
  Dice dice(seed, 1);
  out.seed = seed;
  out.world = static_cast<int>(1 + dice.below(3));
  int stage = static_cast<int>(dice.below(4));
  Config& c = out.config = make_config(stage, 1 + dice.below(4), out.world);
  c.compute = dice.pick({DS_DTYPE_F32, DS_DTYPE_BF16});
  c.reproducible = out.world != 3 && dice.one_in(3);
  c.gradient_clipping = 0;
  c.comm_timeout_ms = 20000;
  c.optimizer.type = "SGD";
  c.optimizer.lr = 0x1p-7;
  c.optimizer.weight_decay = 0;
  c.optimizer.momentum = dice.pick({0.0, 0.5});
  choose_memory(c, dice);
  choose_codes(c, dice);
  if (dice.one_in(4)) out.options.chaos_seed = seed;
  int64_t params = 2 + dice.below(6);
  for (int64_t p = 0; p < params; ++p) {
    out.names.push_back(fmt::format("h.{}.p{}", dice.one_in(2) ? p : p / 2, p));
    int64_t rows = dice.pick<int64_t>({1, 5, 16, 33}), columns = dice.pick<int64_t>({1, 7, 32});
    out.shapes.push_back(dice.one_in(3) ? std::vector{rows * columns} : std::vector{rows, columns});
  }
  if (dice.one_in(4)) c.frozen = {out.names[0]};
  return out;
}

std::string RandomCase::text() const {
  const ZeroConfig& z = config.zero;
  return fmt::format(
      "seed {}: {} ranks, stage {}, {} micro-steps, {}{}{}{}, states {}, parameters {}{}, bucket {}, "
      "persistent "
      "{}, reuse {}, live {}, weights int{}, gradients int{}{}, {} parameters{}",
      seed, world, z.stage, config.accumulation, dtype_name(config.compute),
      config.reproducible ? " reproducible" : "", z.overlap_comm ? " overlap" : "",
      options.chaos_seed ? " chaos" : "", tier_name(z.optimizer_tier), tier_name(z.param_tier),
      config.emulate_tiers ? " emulated" : "", z.reduce_bucket_size, z.param_persistence_threshold,
      z.max_reuse_distance, z.max_live_parameters, z.quantized_weights ? 8 : 0,
      z.quantized_gradients ? z.gradient_bits : 0, z.error_feedback ? " feedback" : "", names.size(),
      config.frozen.empty() ? "" : ", one frozen");
}

RandomHost::RandomHost(const RandomCase& c, Communicator& comm, std::string folder)
    : case_(c),
      comm_(comm),
      folder_(std::move(folder)),
      engine_(c.config, comm, c.options),
      dice_(c.seed, 2),
      leases_(c.names.size()) {
  for (size_t p = 0; p < c.names.size(); ++p) {
    int64_t numel = 1;
    for (int64_t d : c.shapes[p]) numel *= d;
    numel_.push_back(numel);
    std::vector<float> initial;
    for (int64_t e = 0; e < numel; ++e)
      initial.push_back(static_cast<float>((e * 7 + static_cast<int64_t>(p) * 13) % 61 - 30) / 16);
    engine_.add_param(c.names[p], c.shapes[p], initial);
    master_.emplace_back(initial.begin(), initial.end());
    momentum_.emplace_back(static_cast<size_t>(numel));
    frozen_.push_back(!c.config.frozen.empty() && p == 0);
  }
  sum_ = momentum_;
  place_ = start();
}

void RandomHost::run() {
  for (int64_t s = 0; s < kSteps; ++s) {
    between_steps();
    train_step();
  }
}

void RandomHost::fail(const std::string& what) const {
  throw std::runtime_error(fmt::format("rank {}, step {}, call {}: {}", comm_.rank(), steps_, call_, what));
}

// ---- the calls of a step

RandomHost::Place RandomHost::start() const {
  return {std::vector<int>(numel_.size()), std::vector<char>(numel_.size()), 0};
}

void RandomHost::add(Calls& calls, Place& place, Call call) const {
  using Kind = Call::Kind;
  for (int32_t p : call.params) {
    size_t i = static_cast<size_t>(p);
    if (call.kind == Kind::gather) ++place.leases[i];
    if (call.kind == Kind::release) --place.leases[i];
    if (call.kind == Kind::grad) place.given[i] = 1;
  }
  if (call.kind == Kind::end) {
    ++place.micro;
    place.given.assign(numel_.size(), 0);
  }
  calls.push_back(std::move(call));
}

RandomHost::Place RandomHost::after(const Calls& calls, size_t count) const {
  Place place = start();
  Calls ignored;
  for (size_t i = 0; i < count; ++i) add(ignored, place, calls[i]);
  return place;
}

std::vector<int32_t> RandomHost::order() {
  std::vector<int32_t> out(numel_.size());
  std::iota(out.begin(), out.end(), 0);
  if (dice_.one_in(2)) return out;
  for (size_t i = out.size(); i > 1; --i)
    std::swap(out[i - 1], out[static_cast<size_t>(dice_.below(static_cast<int64_t>(i)))]);
  return out;
}

void RandomHost::give(Calls& calls, Place& place, int32_t param) {
  size_t i = static_cast<size_t>(param);
  if (place.given[i] || frozen_[i] || place.micro >= case_.config.accumulation) return;
  if (drop_ > 0 && dice_.one_in(drop_)) return;
  add(calls, place, {Call::Kind::grad, {param}});
}

// In one call: some of the leases, or all.
void RandomHost::release_some(Calls& calls, Place& place, bool all) {
  std::vector<int32_t> held;
  for (size_t p = 0; p < numel_.size(); ++p) {
    for (int k = 0; k < place.leases[p]; ++k) {
      if (all || dice_.one_in(2)) held.push_back(static_cast<int32_t>(p));
    }
  }
  if (!held.empty()) add(calls, place, {Call::Kind::release, held});
}

void RandomHost::random_call(Calls& calls, Place& place) {
  int64_t what = dice_.below(8);
  auto count = static_cast<int64_t>(numel_.size());
  if (what < 3) {
    std::vector<int32_t> params;
    for (int64_t n = 1 + dice_.below(3); n > 0; --n)
      params.push_back(static_cast<int32_t>(dice_.below(count)));
    add(calls, place, {Call::Kind::gather, params});
  } else if (what < 5) {
    release_some(calls, place, dice_.one_in(4));
  } else {
    give(calls, place, static_cast<int32_t>(dice_.below(count)));
  }
}

void RandomHost::soup(Calls& calls, Place& place, int64_t length) {
  for (; length > 0; --length) random_call(calls, place);
}

// As a framework's hooks do it: layer by layer forward, and back.
void RandomHost::layers(Calls& calls, Place& place) {
  std::vector<int32_t> params = order();
  bool lease = !dice_.one_in(4), again = dice_.one_in(2), late = dice_.one_in(3);
  if (lease) {
    for (int32_t p : params) {
      add(calls, place, {Call::Kind::gather, {p}});
      if (again) add(calls, place, {Call::Kind::release, {p}});
    }
  }
  std::reverse(params.begin(), params.end());
  for (int32_t p : params) {
    if (lease && again) add(calls, place, {Call::Kind::gather, {p}});
    give(calls, place, p);
    if (lease && !late) add(calls, place, {Call::Kind::release, {p}});
  }
}

void RandomHost::all_at_once(Calls& calls, Place& place) {
  std::vector<int32_t> params = order();
  add(calls, place, {Call::Kind::gather, params});
  bool early = dice_.one_in(2);
  if (early) release_some(calls, place, true);
  for (int32_t p : order()) {
    give(calls, place, p);
    if (dice_.one_in(3)) release_some(calls, place, false);
  }
}

// From anywhere in a step to its end, without leases.
void RandomHost::finish(Calls& calls, Place place) {
  drop_ = dice_.pick<int64_t>({0, 0, 2, 6});
  while (place.micro < case_.config.accumulation) {
    int64_t style = dice_.below(5);
    if (style < 2) layers(calls, place);
    if (style == 2) all_at_once(calls, place);
    if (style == 3) soup(calls, place, 2 + dice_.below(12));
    if (style == 4) soup(calls, place, dice_.below(3));  // hardly any gradient
    add(calls, place, {Call::Kind::end, {}});
    if (dice_.one_in(3)) release_some(calls, place, true);
  }
  if (dice_.one_in(3)) soup(calls, place, dice_.below(4));
  while (std::any_of(place.leases.begin(), place.leases.end(), [](int n) { return n > 0; }))
    release_some(calls, place, dice_.one_in(2));
}

RandomHost::Calls RandomHost::next_calls() {
  int64_t what = calls_.empty() ? 3 : dice_.below(6);
  Calls next = what == 1 ? older_ : calls_;  // 0, 1: those of the last step, or of one before
  if (what == 2 || what == 4)
    next.resize(static_cast<size_t>(dice_.below(static_cast<int64_t>(next.size()))));
  if (what == 3) next.clear();
  std::erase_if(next, [&](const Call& c) {
    return c.kind == Call::Kind::grad && frozen_[static_cast<size_t>(c.params[0])];
  });
  Place place = after(next, next.size());
  if (what == 2 || what == 4) {
    if (place.micro < case_.config.accumulation) soup(next, place, dice_.below(8));
  }
  if (next.empty() || place.micro < case_.config.accumulation || what == 2 || what == 4) finish(next, place);
  older_ = calls_;
  return next;
}

// ---- a step

std::vector<float> RandomHost::gradient(int64_t micro, int rank, int32_t param) const {
  int64_t top = top_of(case_.config);
  std::vector<float> out;
  Dice dice(case_.seed * 1000 + static_cast<uint64_t>(drawn_),
            static_cast<uint32_t>((micro * 8 + rank) * 64 + param + 16));
  for (int64_t e = 0; e < numel_[static_cast<size_t>(param)]; ++e) {
    bool first = e % ds::kGranule == 0;
    int64_t x = first ? (dice.one_in(2) ? top : -top) : (e * 5 + dice.below(3) + param) % (2 * top + 1) - top;
    out.push_back(static_cast<float>(x));
  }
  return out;
}

void RandomHost::hand_over(int32_t param) {
  size_t i = static_cast<size_t>(param);
  for (int r = 0; r < comm_.size(); ++r) {
    std::vector<float> leaf = gradient(place_.micro, r, param);
    for (size_t e = 0; e < leaf.size(); ++e) sum_[i][e] += static_cast<double>(leaf[e]);
    if (r != comm_.rank()) continue;
    bool narrow_it = case_.config.compute == DS_DTYPE_BF16 && (param + place_.micro) % 2 == 0;
    std::vector<std::byte> bytes(leaf.size() * sizeof(float));
    if (narrow_it) narrow(DS_DTYPE_BF16, leaf.data(), numel_[i], bytes.data());
    engine_.grad_ready(param, narrow_it ? static_cast<const void*>(bytes.data()) : leaf.data(),
                       narrow_it ? DS_DTYPE_BF16 : DS_DTYPE_F32, numel_[i]);
    std::fill(leaf.begin(), leaf.end(), -1e30f);  // it was copied
    std::fill(bytes.begin(), bytes.end(), std::byte{0x7F});
  }
}

double RandomHost::tolerance(int32_t param, double value) const {
  const Config& c = case_.config;
  double off = 1e-5 * (1 + std::abs(value));
  if (c.compute == DS_DTYPE_BF16) off += std::abs(value) * 0x1p-8;
  if (!c.zero.quantized_weights) return off;
  double top = 0;
  for (double x : master_[static_cast<size_t>(param)]) top = std::max(top, std::abs(x));
  return off + top / 127;
}

// What a lease shows is the parameter, and stays so.
void RandomHost::check_leases(const std::vector<int32_t>& params) {
  for (int32_t p : params) {
    size_t i = static_cast<size_t>(p);
    TensorView view = engine_.view(p);
    size_t bytes = static_cast<size_t>(numel_[i] * size_of(view.dtype));
    Lease& lease = leases_[i];
    if (!lease.data) {
      lease.data = view.data;
      lease.copy.assign(view.as<std::byte>(), view.as<std::byte>() + bytes);
      std::vector<float> got(static_cast<size_t>(numel_[i]));
      widen(view.dtype, view.as<std::byte>(), numel_[i], got.data());
      for (size_t e = 0; e < got.size(); ++e) {
        double want = master_[i][e];
        if (!(std::abs(static_cast<double>(got[e]) - want) <= tolerance(p, want)))
          fail(fmt::format("leased {}[{}] is {}, not {}", case_.names[i], e, got[e], want));
      }
    }
    if (std::memcmp(lease.data, lease.copy.data(), bytes) != 0 || view.data != lease.data)
      fail(fmt::format("leased {} has changed", case_.names[i]));
  }
}

void RandomHost::perform(const Call& call) {
  ++call_;
  if (std::getenv("DS_SHOW_CALLS") && comm_.rank() == 0) {
    const char* names[] = {"gather", "release", "grad", "end"};
    fmt::print(stderr, "step {} call {}: {} {}\n", steps_, call_, names[static_cast<int>(call.kind)],
               fmt::join(call.params, " "));
  }
  Calls ignored;
  if (call.kind == Call::Kind::gather) {
    engine_.gather(call.params);
    check_leases(call.params);
  } else if (call.kind == Call::Kind::release) {
    check_leases(call.params);
    engine_.release(call.params);
  } else if (call.kind == Call::Kind::grad) {
    hand_over(call.params[0]);
  } else {
    engine_.end_micro_step();
  }
  add(ignored, place_, call);
  for (int32_t p : call.params) {
    if (place_.leases[static_cast<size_t>(p)] == 0) leases_[static_cast<size_t>(p)] = {};
  }
}

void RandomHost::train_step() {
  Calls calls = next_calls();
  ++drawn_;
  for (std::vector<double>& s : sum_) std::fill(s.begin(), s.end(), 0.0);
  for (const Call& call : calls) {
    perform(call);
    if (dice_.one_in(12)) try_wrong_calls();
  }
  calls_ = std::move(calls);
  any_gradient_ = true;
  if (dice_.one_in(2)) check_gradients("before the update");
  StepResult result = engine_.step();
  place_ = start();
  update();
  if (result.step != steps_) fail(fmt::format("step {} taken, not {}", result.step, steps_));
  if (dice_.one_in(2)) check_gradients("after the update");
  if (dice_.one_in(2)) check_masters();
}

void RandomHost::update() {
  ++steps_;
  double leaves = static_cast<double>(case_.config.accumulation * comm_.size());
  for (size_t p = 0; p < master_.size(); ++p) {
    if (frozen_[p]) continue;
    for (size_t e = 0; e < master_[p].size(); ++e) {
      momentum_[p][e] = case_.config.optimizer.momentum * momentum_[p][e] + sum_[p][e] / leaves;
      master_[p][e] -= case_.config.optimizer.lr * momentum_[p][e];
    }
  }
}

void RandomHost::check_gradients(const char* when) {
  float scale = 1.0f / static_cast<float>(case_.config.accumulation * comm_.size());
  for (size_t p = 0; any_gradient_ && p < numel_.size(); ++p) {
    if (frozen_[p]) continue;
    std::vector<float> got = engine_.read_tensor(static_cast<int32_t>(p), "grad");
    for (size_t e = 0; e < got.size(); ++e) {
      float want = static_cast<float>(sum_[p][e]) * scale;
      if (got[e] != want)
        fail(fmt::format("gradient of {}[{}] {} is {}, not {}", case_.names[p], e, when, got[e], want));
    }
  }
}

void RandomHost::check_masters() {
  for (size_t p = 0; p < numel_.size(); ++p) {
    std::vector<float> got = engine_.read_tensor(static_cast<int32_t>(p), "master");
    for (size_t e = 0; e < got.size(); ++e) {
      double want = master_[p][e];
      if (!(std::abs(static_cast<double>(got[e]) - want) <= 1e-5 * (1 + std::abs(want))))
        fail(fmt::format("{}[{}] is {}, not {}", case_.names[p], e, got[e], want));
    }
  }
}

// ---- between steps

void RandomHost::between_steps() {
  for (int64_t n = dice_.below(3); n > 0; --n) {
    if (dice_.one_in(2)) evaluate();
    if (dice_.one_in(2)) touch_state();
  }
}

// Gathers and releases: often those that the last step began with, all or some of them.
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
    place.micro = case_.config.accumulation;  // takes no gradients
    soup(calls, place, length);
  }
  release_some(calls, place, true);
  for (const Call& c : calls) {
    perform(c);
    if (dice_.one_in(8)) try_wrong_calls();
  }
}

void RandomHost::touch_state() {
  int64_t what = dice_.below(6);
  if (what == 0) save();
  if (what == 1 && !saved_.empty()) load();
  if (what == 2) freeze_some();
  if (what == 3) write_some();
  if (what == 4) check_masters();
  if (what == 5) check_gradients("between steps");
}

void RandomHost::save() {
  std::string path = engine_.save(folder_ + fmt::format("/{}", saved_.size()));
  saved_.push_back({path, master_, momentum_, steps_});
}

void RandomHost::load() {
  const Saved& s = saved_[static_cast<size_t>(dice_.below(static_cast<int64_t>(saved_.size())))];
  engine_.load(s.path);
  master_ = s.master;
  momentum_ = s.momentum;
  steps_ = s.steps;
  for (size_t p = 0; p < frozen_.size(); ++p) frozen_[p] = engine_.is_frozen(static_cast<int32_t>(p));
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
  }
  engine_.freeze(params, freeze ? 1 : 0);
  any_gradient_ = false;
}

void RandomHost::write_some() {
  size_t p = static_cast<size_t>(dice_.below(static_cast<int64_t>(numel_.size())));
  std::vector<float> values;
  for (int64_t e = 0; e < numel_[p]; ++e) values.push_back(static_cast<float>((e * 3 + steps_) % 17 - 8) / 8);
  engine_.write_tensor(static_cast<int32_t>(p), "master", values);
  master_[p] = {values.begin(), values.end()};
}

// ---- what must be refused, and change nothing

void RandomHost::refused(const char* what, const std::string& part, const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    bool right =
        error.status() == DS_ERROR_STATE && std::string(error.what()).find(part) != std::string::npos;
    if (!right) fail(fmt::format("{}: {}", what, error.what()));
    return;
  }
  fail(fmt::format("{} was accepted", what));
}

void RandomHost::try_wrong_calls() {
  auto param = static_cast<int32_t>(dice_.below(static_cast<int64_t>(numel_.size())));
  size_t p = static_cast<size_t>(param);
  std::vector<int32_t> many(static_cast<size_t>(place_.leases[p] + 1), param);
  refused("releasing too often", case_.names[p], [&] { engine_.release(many); });
  std::vector<float> values(static_cast<size_t>(numel_[p]));
  bool begun = place_.micro > 0 || std::count(place_.given.begin(), place_.given.end(), 1) > 0;
  auto held = std::find_if(place_.leases.begin(), place_.leases.end(), [](int n) { return n > 0; });
  if (begun) refused("saving in a step", "inside a step", [&] { engine_.save(folder_ + "/never"); });
  if (place_.given[p])
    refused("a second gradient", case_.names[p],
            [&] { engine_.grad_ready(param, values.data(), DS_DTYPE_F32, numel_[p]); });
  if (!begun && held == place_.leases.end()) return;
  std::string part = begun ? "inside a step" : case_.names[static_cast<size_t>(held - place_.leases.begin())];
  refused("writing", part, [&] { engine_.write_tensor(param, "master", values); });
  refused("freezing", part, [&] { engine_.freeze({&param, 1}, 1); });
  refused("refreshing", part, [&] { engine_.refresh_params(); });
}

}  // namespace ds::test
