// Of StateStore: what every rank has for itself.
#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>
#include <vector>

#include "core/program/signs.h"
#include "engine/state_store.h"
#include "optim/optimizer.h"

namespace ds {

void StateStore::forget(std::initializer_list<BufferId> buffers) {
  for (BufferId b : buffers) {
    if (b.exists()) runtime_.fill(runtime_.buffer(b), 0, 0, runtime_.buffer(b).bytes());
  }
}

void StateStore::forget_own_momenta() {
  for (const BucketState& s : zero_.buckets)
    forget({s.worker_error, s.server_error, s.own_steps, s.sent_error, s.answer_error});
  forget({zero_.joined.worker_error, zero_.joined.server_error, zero_.joined.padding});
  control_.forget_rate_sums();
}

void StateStore::forget_own() {
  forget_own_momenta();
  for (const BucketState& s : zero_.buckets) {
    for (BufferId error : s.errors) forget({error});
  }
}

void StateStore::forget_errors(ParamId param) {
  const BucketId b = bucket_of(param);
  const ParamPlace& place = zero_.layout.place(param);
  const std::vector<BufferId>& errors = zero_.buckets[b].errors;
  for (size_t level = 0; level < errors.size(); ++level) {
    const int64_t low = zero_.part_first(b, static_cast<int>(level)),
                  high = low + zero_.part_numel(b, static_cast<int>(level));
    const int64_t begin = std::max(low, place.begin),
                  end = std::min(high, place.begin + place.numel);
    constexpr int64_t kUnit = sizeof(float);
    if (begin < end)
      runtime_.fill(runtime_.buffer(errors[level]), (begin - low) * kUnit, 0,
                    (end - begin) * kUnit);
  }
}

// Names say what a state is of, and so does the number of elements. Errors of momentum are those of
// a tensor. Those of gradients are a part of each tensor at each level of ranks: the same bytes in
// another bucket are found again, those of another cut are not.
std::vector<StateStore::Own> StateStore::own() const {
  std::vector<Own> out;
  if (!trains()) return out;
  auto add = [&](std::string name, const StateRef& ref, bool common = false) {
    out.push_back({{std::move(name), ref.numel, common}, ref});
  };
  auto all_of = [&](BufferId b) { return StateRef{b, 0, runtime_.buffer(b).numel}; };
  for (BucketId b : zero_.buckets.ids()) {
    const BucketState& s = zero_.buckets[b];
    const std::vector<ParamPlace> trained = zero_.trained_params(b);
    for (size_t level = 0; level < s.errors.size(); ++level) {
      const int64_t low = zero_.part_first(b, static_cast<int>(level)),
                    high = low + zero_.part_numel(b, static_cast<int>(level));
      for (const ParamPlace& p : trained) {
        const int64_t begin = std::max(low, p.begin), end = std::min(high, p.begin + p.numel);
        if (begin >= end) continue;
        add(fmt::format("{}.gradient_error.{}.{}", names_[p.param], level, begin - p.begin),
            {s.errors[level], begin - low, end - begin});
      }
    }
    for (const ParamPlace& p : trained) {
      if (!s.own_steps.exists()) break;
      add(names_[p.param] + ".own_steps", {s.own_steps, p.begin, p.numel});
      add(names_[p.param] + "." + state_kinds_.at(1), s.states.at(0).slice(p.begin, p.numel));
    }
    for (const ParamPlace& p : trained) {
      if (!s.sent_error.exists()) break;
      add(names_[p.param] + ".sent_error", {s.sent_error, p.begin, p.numel});
      if (!s.answer_error.exists()) continue;
      // Of the part of this rank, which other buckets would cut elsewhere: the name says from where
      // on.
      const int64_t part = runtime_.buffer(s.answer_error).numel,
                    low = zero_.mesh.leaf(0, zero_.rank) * part;
      const int64_t begin = std::max(p.begin, low), end = std::min(p.begin + p.numel, low + part);
      if (begin < end)
        add(fmt::format("{}.answer_error.{}", names_[p.param], begin - p.begin),
            {s.answer_error, begin - low, end - begin});
    }
    if (!s.worker_error.exists()) continue;
    int64_t ranks = zero_.levels(b).ranks();
    for_sign_tensors(places_of(trained), ranks, 1, [&](const SignTensor& t) {
      const std::string& name = names_[trained[static_cast<size_t>(t.index)].param];
      add(name + ".worker_error", {s.worker_error, ranks * t.first, ranks * t.chunk});
      add(name + ".server_error", {s.server_error, t.first, t.chunk});
    });
  }
  const JoinedMomenta& joined = zero_.joined;
  if (joined.worker_error.exists()) add("worker_error", all_of(joined.worker_error));
  if (joined.server_error.exists()) add("server_error", all_of(joined.server_error));
  if (joined.padding.exists()) add("padding", all_of(joined.padding));
  if (joined.coefficients.exists()) add("coefficients", all_of(joined.coefficients), true);
  if (optimizer_of(runtime_.config().optimizer).steps_locally())
    add("rate_sums", {BufferId(), 0, std::ssize(control_.rate_sums())});
  return out;
}

std::vector<OwnState> StateStore::own_states() {
  own_ = own();
  std::vector<OwnState> out;
  for (const Own& o : own_) out.push_back(o.state);
  return out;
}

void StateStore::read_own(size_t index, int64_t begin, int64_t count, float* out) {
  const StateRef& ref = own_.at(index).ref;
  if (!ref.buffer.exists()) {
    std::copy_n(control_.rate_sums().begin() + begin, count, out);
  } else {
    read(ref.buffer, ref.first + begin, count, out);
  }
}

void StateStore::write_own(size_t index, int64_t begin, int64_t count, const float* in) {
  const StateRef& ref = own_.at(index).ref;
  if (!ref.buffer.exists()) {
    control_.take_rate_sums(begin, {in, static_cast<size_t>(count)});
  } else {
    write(ref.buffer, ref.first + begin, count, in);
  }
}

int64_t StateStore::copy_bytes() {
  int64_t elements = 0;
  for (BucketId b : zero_.buckets.ids())
    elements += std::ssize(state_kinds_) * zero_.layout.buckets[b].shard();
  for (const OwnState& own : own_states()) elements += own.numel;
  return elements * int64_t{sizeof(float)};
}

}  // namespace ds
