#include "support/random_host.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <stdexcept>

#include "core/program/granules.h"
#include "support/initial.h"
#include "zero/policy.h"
#include "zero/reduce.h"
#include "zero/zero_plan.h"

namespace ds::test {
namespace {

constexpr int64_t kSteps = 7;

int64_t numel_of(const std::vector<int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

std::vector<std::vector<float>> initial_values(const RandomCase& c) {
  std::vector<std::vector<float>> out;
  for (size_t p = 0; p < c.names.size(); ++p) {
    out.emplace_back();
    for (int64_t e = 0; e < numel_of(c.shapes[p]); ++e)
      out[p].push_back(static_cast<float>((e * 7 + static_cast<int64_t>(p) * 13) % 61 - 30) / 16);
  }
  return out;
}

// Returns the rank whose gradients `rank` uses. Sums of codes are themselves codes only if all
// summands are equal, so ranks whose sums are quantized again at an outer level use the gradients
// of the first rank among them.
int drawing_rank(const RandomCase& c, int rank) {
  if (!c.config.zero.quantized_gradients) return rank;
  RankLevels levels = make_levels(c.config, c.world, {c.world, 1}, {});
  int inner = levels.ways(levels.depth() - 1);
  return rank / inner * inner;
}

}  // namespace

int64_t top_of(const Config& c) {
  return c.zero.quantized_gradients && c.zero.gradient_bits == 8 ? 127 : 7;
}

RandomHost::RandomHost(const RandomCase& c, Communicator& comm, std::string folder)
    : case_(c),
      comm_(comm),
      folder_(std::move(folder)),
      engine_(c.config, comm, with_values(initial_values(c), c.options)),
      dice_(c.seed, 2),
      state_(c.config.optimizer, initial_values(c)),
      groups_(c.config.optimizer, c.names),
      had_gradient_(c.names.size()),
      lasting_(c.names.size()),
      leases_(c.names.size()),
      grad_views_(c.names.size()) {
  std::vector<std::vector<float>> initial = initial_values(c);
  for (size_t p = 0; p < c.names.size(); ++p) {
    engine_.add_param(c.names[p], c.shapes[p], c.types[p]);
    numel_.push_back(static_cast<int64_t>(initial[p].size()));
    sum_.emplace_back(initial[p].size());
    frozen_.push_back(!c.config.frozen.empty() && p == 0);
    trained_.push_back(!frozen_[p]);
  }
  engine_.start();
  if (c.separate) stream_ = std::make_shared<Stream>(engine_.runtime().device());
  place_ = start();
  follow_groups();
}

void RandomHost::run() {
  for (int64_t s = 0; s < kSteps; ++s) {
    between_steps();
    train_step();
  }
}

void RandomHost::fail(const std::string& what) const {
  throw std::runtime_error(
      fmt::format("rank {}, step {}, call {}: {}", comm_.rank(), steps_, call_, what));
}

// --- the calls of a step ---

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

// Requests memory for a gradient. The host may hand over the gradient immediately, later or never.
void RandomHost::view(Calls& calls, Place& place, int32_t param) {
  size_t i = static_cast<size_t>(param);
  if (place.given[i] || frozen_[i] || place.micro >= micros_) return;
  add(calls, place, {Call::Kind::view, {param}});
}

void RandomHost::give(Calls& calls, Place& place, int32_t param) {
  size_t i = static_cast<size_t>(param);
  if (place.given[i] || frozen_[i] || place.micro >= micros_) return;
  if (dice_.one_in(4)) view(calls, place, param);
  if (drop_ > 0 && dice_.one_in(drop_)) return;
  add(calls, place, {Call::Kind::grad, {param}});
}

// Releases some or all leases in one call.
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
  } else if (what == 5) {
    view(calls, place, static_cast<int32_t>(dice_.below(count)));
  } else {
    give(calls, place, static_cast<int32_t>(dice_.below(count)));
  }
}

void RandomHost::soup(Calls& calls, Place& place, int64_t length) {
  for (; length > 0; --length) random_call(calls, place);
}

// Makes the calls that a framework's hooks make: layer by layer in forward, then in backward.
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

void RandomHost::micro_step(Calls& calls, Place& place) {
  int64_t style = dice_.below(5);
  if (style < 2) layers(calls, place);
  if (style == 2) all_at_once(calls, place);
  if (style == 3) soup(calls, place, 2 + dice_.below(12));
  // Such a micro-step hands over few gradients or none.
  if (style == 4) soup(calls, place, dice_.below(3));
  add(calls, place, {Call::Kind::end, {}});
  if (dice_.one_in(3)) release_some(calls, place, true);
}

// Completes the calls from any point of a step to the end of the step, where no lease is open. A
// long step repeats the first micro-step that can be repeated until only the last one is left.
void RandomHost::finish(Calls& calls, Place place) {
  drop_ = dice_.pick<int64_t>({0, 0, 2, 6});
  bool steady = case_.options.programs.written_out == 0;
  while (place.micro < micros_) {
    size_t begin = calls.size(), end = begin;
    std::vector<int> leases = place.leases;
    micro_step(calls, place);
    end = calls.size();
    steady = steady && place.leases == leases;
    while (steady && place.micro + 1 < micros_) {
      for (size_t i = begin; i < end; ++i) add(calls, place, Call(calls[i]));
    }
  }
  if (dice_.one_in(3)) soup(calls, place, dice_.below(4));
  while (std::any_of(place.leases.begin(), place.leases.end(), [](int n) { return n > 0; }))
    release_some(calls, place, dice_.one_in(2));
}

// Draws the number of micro-steps of the next step, and when the host tells the engine: before the
// step, before the last micro-step, or after the last micro-step has ended. Draws the divisor, too.
void RandomHost::draw_micros() {
  const int64_t usual = case_.config.accumulation;
  micros_ = usual;
  tell_at_ = -1;
  if (dice_.one_in(4)) {
    const int64_t most = most_micro_steps(engine_.plan().zero);
    micros_ = 1 + dice_.below(std::min(usual + 2, most));
    const int64_t last = std::min(micros_, usual) - 1;
    tell_at_ = dice_.pick<int64_t>({0, last, last, micros_ < usual ? micros_ : last});
  }
  if (case_.config.by_tokens() || !dice_.one_in(6)) return;
  mean_ = dice_.one_in(3) ? 0 : 1 + dice_.below(5);
  engine_.set("mean_micro_steps", mean_ > 0 ? static_cast<double>(mean_) : std::nan(""));
}

RandomHost::Calls RandomHost::next_calls() {
  if (micros_ != case_.config.accumulation) {
    Calls calls;
    finish(calls, start());
    return calls;
  }
  int64_t what = calls_.empty() ? 3 : dice_.below(6);
  // 1 repeats the calls of the step before the last. All other numbers start from the calls of the
  // last step: 2 and 4 keep a prefix of them, and 3 keeps none.
  Calls next = what == 1 ? older_ : calls_;
  if (what == 2 || what == 4)
    next.resize(static_cast<size_t>(dice_.below(static_cast<int64_t>(next.size()))));
  if (what == 3) next.clear();
  std::erase_if(next, [&](const Call& c) {
    bool gradient = c.kind == Call::Kind::grad || c.kind == Call::Kind::view;
    return gradient && frozen_[c.params[0]];
  });
  Place place = after(next, next.size());
  if (what == 2 || what == 4) {
    if (place.micro < micros_) soup(next, place, dice_.below(8));
  }
  if (next.empty() || place.micro < micros_ || what == 2 || what == 4) finish(next, place);
  older_ = calls_;
  return next;
}

// --- a step ---

std::vector<float> RandomHost::gradient(int64_t micro, int rank, int32_t param) const {
  int64_t top = top_of(case_.config);
  std::vector<float> out;
  Dice dice(case_.seed * 1000 + static_cast<uint64_t>(drawn_),
            static_cast<uint32_t>((micro * 8 + drawing_rank(case_, rank)) * 64 + param + 16));
  for (int64_t e = 0; e < numel_[static_cast<size_t>(param)]; ++e) {
    bool first = e % ds::kGranule == 0;
    int64_t x = first ? (dice.one_in(2) ? top : -top)
                      : (e * 5 + dice.below(3) + param) % (2 * top + 1) - top;
    out.push_back(static_cast<float>(x));
  }
  return out;
}

void RandomHost::hand_over(int32_t param) {
  size_t i = static_cast<size_t>(param);
  had_gradient_[i] = 1;
  for (int r = 0; r < comm_.size(); ++r) {
    std::vector<float> leaf = gradient(place_.micro, r, param);
    for (size_t e = 0; e < leaf.size(); ++e) sum_[i][e] += static_cast<double>(leaf[e]);
    if (r != comm_.rank()) continue;
    // A host differentiates the loss times the loss scale; the engine divides the gradients by it.
    for (float& x : leaf) x *= static_cast<float>(engine_.control().scaler().scale);
    const auto& [view, owner, on_device] = grad_views_[i];
    if (view.data && numel_[i] > 0) {
      auto* room =
          on_device ? stage(static_cast<size_t>(view.bytes())) : static_cast<std::byte*>(view.data);
      if (view.dtype == DS_DTYPE_F32)
        std::memcpy(room, leaf.data(), static_cast<size_t>(view.bytes()));
      else
        narrow(view.dtype, leaf.data(), numel_[i], room);
      if (on_device) stream_->queue().copy(view.data, room, view.bytes());
      engine_.grad_ready(ParamId(param), {view.data, view.dtype, numel_[i], on_device,
                                          on_device ? stream_ : nullptr});
      continue;
    }
    const DType compute = case_.types[i];
    bool narrow_it = compute != DS_DTYPE_F32 && (param + place_.micro) % 2 == 0;
    std::vector<std::byte> bytes(leaf.size() * sizeof(float));
    // The stream reads this gradient later.
    if (stream_ && (param + place_.micro) % 3 == 0) {
      std::byte* room = stage(bytes.size());
      narrow_it ? narrow(compute, leaf.data(), numel_[i], room)
                : static_cast<void>(std::memcpy(room, leaf.data(), bytes.size()));
      engine_.grad_ready(ParamId(param),
                         {room, narrow_it ? compute : DS_DTYPE_F32, numel_[i], false, stream_});
      continue;
    }
    if (narrow_it) narrow(compute, leaf.data(), numel_[i], bytes.data());
    engine_.grad_ready(ParamId(param),
                       {narrow_it ? static_cast<const void*>(bytes.data()) : leaf.data(),
                        narrow_it ? compute : DS_DTYPE_F32, numel_[i]});
    // The engine must have copied the gradient, so the host may overwrite it.
    std::fill(leaf.begin(), leaf.end(), -1e30f);
    std::fill(bytes.begin(), bytes.end(), std::byte{0x7F});
  }
}

// Returns how far rounding may move a parameter, gathered or not, from its master.
double RandomHost::rounding_of_param(int32_t param, Bounded master, bool gathered) const {
  // Values outside the range of f16 become infinity, and codes in their granule NaN: nothing is
  // promised there.
  constexpr double beyond = std::numeric_limits<double>::infinity(), most = 65504;
  const DType type = case_.types[static_cast<size_t>(param)];
  auto holds = [&](Bounded x) { return type != DS_DTYPE_F16 || x.magnitude() < most; };
  if (!holds(master)) return beyond;
  double off = master.error;
  if (type == DS_DTYPE_BF16) off += master.magnitude() * 0x1p-8;
  if (type == DS_DTYPE_F16) off += master.magnitude() * 0x1p-11 + 0x1p-25;
  if (!gathered || !case_.config.zero.quantized_weights) return off;
  double top = 0;
  for (Bounded x : state_.at(static_cast<size_t>(param), "master")) {
    if (!holds(x)) return beyond;
    top = std::max(top, x.magnitude());
  }
  return off + top / 127;
}

// Checks that leases show the values of their parameters and do not change.
void RandomHost::check_leases(const std::vector<int32_t>& params) {
  for (int32_t p : params) {
    size_t i = static_cast<size_t>(p);
    TensorView view = engine_.view(ParamId(p)).view;
    size_t bytes = static_cast<size_t>(numel_[i] * size_of(view.dtype));
    Lease& lease = leases_[i];
    if (!lease.data) {
      lease.data = view.data;
      lease.copy.assign(view.as<std::byte>(), view.as<std::byte>() + bytes);
      std::vector<float> got(static_cast<size_t>(numel_[i]));
      widen(view.dtype, view.as<std::byte>(), numel_[i], got.data());
      for (size_t e = 0; e < got.size(); ++e) {
        Bounded want = state_.at(i, "master")[e];
        want.error = rounding_of_param(p, want, true);
        if (std::isfinite(want.error) && !want.holds(static_cast<double>(got[e])))
          fail(fmt::format("leased {}[{}] is {}, not {}", case_.names[i], e, got[e], want.value));
      }
    }
    if (std::memcmp(lease.data, lease.copy.data(), bytes) != 0 || view.data != lease.data)
      fail(fmt::format("leased {} has changed", case_.names[i]));
  }
}

std::byte* RandomHost::stage(size_t bytes) {
  staged_.emplace_back(bytes + 1);
  return staged_.back().data();
}

void RandomHost::read_late(int32_t param) {
  size_t i = static_cast<size_t>(param);
  TensorView view = engine_.view(ParamId(param), stream_).view;
  auto bytes = static_cast<size_t>(view.bytes());
  std::byte* got = stage(bytes);
  stream_->queue().copy(got, view.data, view.bytes());
  late_.push_back({got, leases_[i].copy, case_.names[i]});
}

void RandomHost::check_late() {
  if (!stream_) return;
  stream_->synchronize();
  for (const Late& l : late_) {
    if (std::memcmp(l.got, l.want.data(), l.want.size()) != 0)
      fail(fmt::format("the lease of {} ended before the stream had read it", l.name));
  }
  late_.clear();
  staged_.clear();
}

void RandomHost::perform(const Call& call) {
  ++call_;
  if (std::getenv("DS_SHOW_CALLS") && comm_.rank() == 0) {
    const char* names[] = {"gather", "release", "view", "grad", "end"};
    fmt::print(stderr, "step {} call {}: {} {}\n", steps_, call_,
               names[static_cast<int>(call.kind)], fmt::join(call.params, " "));
  }
  Calls ignored;
  if (call.kind == Call::Kind::gather) {
    engine_.gather(ids_of<ParamId>(call.params));
    check_leases(call.params);
  } else if (call.kind == Call::Kind::release) {
    check_leases(call.params);
    bool late = stream_ && call_ % 2 == 0;
    for (int32_t p : call.params) {
      if (late) read_late(p);
    }
    engine_.release(ids_of<ParamId>(call.params), late ? stream_ : nullptr);
  } else if (call.kind == Call::Kind::view) {
    DelegateEngine::Seen& seen = grad_views_[static_cast<size_t>(call.params[0])];
    seen = engine_.grad_view(ParamId(call.params[0]), call_ % 2 == 0 ? stream_ : nullptr);
    viewed_ = true;
    const TensorView& view = seen.view;
    // The view belongs to the host and holds no gradient yet.
    if (view.bytes() > 0) {
      seen.on_device
          ? stream_->queue().fill(view.data, 0x7F, view.bytes())
          : static_cast<void>(std::memset(view.data, 0x7F, static_cast<size_t>(view.bytes())));
    }
  } else if (call.kind == Call::Kind::grad) {
    hand_over(call.params[0]);
  } else {
    if (case_.config.by_tokens()) engine_.set("micro_weight", weight(place_.micro, comm_.rank()));
    engine_.end_micro_step();
    grad_views_.assign(numel_.size(), {});
    viewed_ = false;
  }
  add(ignored, place_, call);
  for (int32_t p : call.params) {
    if (place_.leases[static_cast<size_t>(p)] == 0) leases_[static_cast<size_t>(p)] = {};
  }
}

void RandomHost::tell_micros() {
  if (tell_at_ != place_.micro) return;
  engine_.set("micro_steps", static_cast<double>(micros_));
  tell_at_ = -1;
}

void RandomHost::drop_step() {
  micros_ = case_.config.accumulation;
  Calls calls = next_calls(), ending;
  calls.resize(static_cast<size_t>(dice_.below(static_cast<int64_t>(calls.size()) + 1)));
  ++drawn_;
  for (const Call& call : calls) perform(call);
  if (dice_.one_in(2) && place_.leases != start().leases)
    refused("forgetting a step with leases", "is leased", [&] { engine_.drop_step(); });
  Place place = place_;
  release_some(ending, place, true);
  for (const Call& call : ending) perform(call);
  check_late();
  engine_.drop_step();
  place_ = start();
  grad_views_.assign(numel_.size(), {});
  viewed_ = any_gradient_ = false;
}

void RandomHost::train_step() {
  if (dice_.one_in(8)) drop_step();
  had_gradient_.assign(numel_.size(), 0);
  draw_micros();
  const bool usual = micros_ == case_.config.accumulation;
  // The engine learns only after the last gradient that it was the last.
  const bool late = tell_at_ == micros_;
  Calls calls = next_calls();
  ++drawn_;
  for (std::vector<double>& s : sum_) std::fill(s.begin(), s.end(), 0.0);
  tell_micros();
  for (const Call& call : calls) {
    perform(call);
    if (call.kind == Call::Kind::end) tell_micros();
    if (dice_.one_in(12)) try_wrong_calls();
  }
  if (usual) calls_ = std::move(calls);
  any_gradient_ = true;
  if (!late && dice_.one_in(2)) check_gradients("before the update");
  if (!late && dice_.one_in(4)) edit_gradient();
  if (dice_.one_in(4)) set_number();
  StepResult result = engine_.step();
  check_late();
  place_ = start();
  ++steps_;
  std::vector<char> left_out = frozen_;
  for (size_t p = 0; p < left_out.size(); ++p) {
    if (case_.config.skip_missing && !had_gradient_[p]) left_out[p] = 1;
  }
  state_.update(sum_, static_cast<int64_t>(weights()), left_out);
  if (result.step != steps_) fail(fmt::format("step {} taken, not {}", result.step, steps_));
  check_norm(result.grad_norm);
  if (dice_.one_in(2)) check_gradients("after the update");
  if (dice_.one_in(2)) check_state();
}

// Reads a whole tensor, and checks this rank's part against it.
std::vector<float> RandomHost::read(int32_t param, const std::string& kind) {
  std::vector<float> whole = engine_.store().read_tensor(ParamId(param), kind),
                     part = engine_.store().read_local(ParamId(param), kind);
  auto [first, count] = engine_.store().local_range(ParamId(param));
  bool same = static_cast<int64_t>(part.size()) == count &&
              std::equal(part.begin(), part.end(), whole.begin() + first);
  if (!same)
    fail(fmt::format("local {} of {} is not what the whole has", kind, case_.names[param]));
  return whole;
}

double RandomHost::weight(int64_t micro, int rank) const {
  if (!case_.config.by_tokens() || micro + rank == 0) return 1;
  return static_cast<double>(
      Dice(case_.seed + static_cast<uint64_t>(drawn_), 5 + rank).below(5 + micro));
}

double RandomHost::weights() const {
  double sum = 0;
  for (int64_t m = 0; m < micros_; ++m) {
    for (int r = 0; r < comm_.size(); ++r) sum += weight(m, r);
  }
  return mean_ > 0 ? static_cast<double>(mean_ * comm_.size()) : sum;
}

void RandomHost::check_norm(double norm) const {
  double sum = 0;
  for (const std::vector<double>& param : sum_) {
    for (double x : param) sum += x * x;
  }
  double want = std::sqrt(sum) / weights();
  if (!(std::abs(norm - want) <= 1e-6 * want))
    fail(fmt::format("the norm is {}, not {}", norm, want));
}

void RandomHost::check_gradients(const char* when) {
  float scale = 1.0f / static_cast<float>(weights());
  for (size_t p = 0; any_gradient_ && p < numel_.size(); ++p) {
    if (frozen_[p]) continue;
    std::vector<float> got = read(static_cast<int32_t>(p), "grad");
    for (size_t e = 0; e < got.size(); ++e) {
      float want = static_cast<float>(sum_[p][e]) * scale;
      if (got[e] != want)
        fail(fmt::format("gradient of {}[{}] {} is {}, not {}", case_.names[p], e, when, got[e],
                         want));
    }
  }
}

// Checks that views without a lease show the parameters at the addresses that they had at first.
void RandomHost::check_lasting() {
  const ZeroPlan& zero = engine_.plan().zero;
  for (size_t p = 0; p < numel_.size(); ++p) {
    const auto param = static_cast<int32_t>(p);
    if (stream_ || zero.buckets[zero.layout.bucket_of[ParamId(param)]].partitioned) continue;
    const TensorView view = engine_.view(ParamId(param)).view;
    if (!lasting_[p]) lasting_[p] = view.data;
    if (lasting_[p] != view.data) fail(fmt::format("{} has moved", case_.names[p]));
    std::vector<float> got(static_cast<size_t>(numel_[p]));
    widen(view.dtype, view.as<std::byte>(), numel_[p], got.data());
    const std::vector<float> want = engine_.store().read_tensor(ParamId(param), "param");
    // NaN, which codes out of range have, differs from itself.
    if (std::memcmp(got.data(), want.data(), got.size() * sizeof(float)) != 0)
      fail(fmt::format("the view of {} without a lease is not its value", case_.names[p]));
  }
}

void RandomHost::check_state() {
  check_lasting();
  std::vector<std::string> kinds = state_.kinds();
  kinds.emplace_back("param");
  for (const std::string& kind : kinds) {
    for (size_t p = 0; p < numel_.size(); ++p) {
      auto param = static_cast<int32_t>(p);
      std::vector<float> got = read(param, kind);
      for (size_t e = 0; e < got.size(); ++e) {
        Bounded want = state_.at(p, kind == "param" ? "master" : kind)[e];
        if (kind == "param") want.error = rounding_of_param(param, want, false);
        if (std::isinf(want.error) || want.holds(static_cast<double>(got[e]))) continue;
        fail(
            fmt::format("{} of {}[{}] is {}, not {}", kind, case_.names[p], e, got[e], want.value));
      }
    }
  }
}

}  // namespace ds::test
