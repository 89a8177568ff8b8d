#include "engine/host_order.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>

#include "core/base/hash.h"
#include "core/graph/graph.h"
#include "core/program/granules.h"
#include "core/program/program.h"

namespace ds {
namespace {

// The largest number of calls before the first gradient that are kept.
constexpr size_t kMostCallsBefore = 1 << 17;

}  // namespace

std::string HostOrder::hash_of(const Events& events) {
  Hash128 hash;
  for (const HostEvent& e : events) {
    hash.update(fmt::format("{} {} ", static_cast<int>(e.kind), e.params.size()));
    hash.update(e.params.data(), e.params.size() * sizeof(ParamId));
  }
  return hash.hex();
}

std::string HostOrder::text_of(const Events& events, const IdVector<ParamId, ParamSpec>& params) {
  constexpr const char* kCalls[] = {"ds_gather_params", "ds_release_params", "ds_engine_grad_view",
                                    "ds_grad_ready", "ds_backward"};
  std::string out;
  for (const HostEvent& event : events) {
    out += kCalls[static_cast<size_t>(event.kind)];
    const char* before = " of '";
    for (ParamId p : event.params) {
      out += before + params[p].name + "'";
      before = ", '";
    }
    out += '\n';
  }
  return out;
}

std::string HostOrder::first_difference(std::string_view mine, std::string_view theirs, int rank) {
  auto next_line = [](std::string_view& text) {
    if (text.empty()) return std::string_view("no call");
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(line.size() + 1);
    return line;
  };
  std::string_view here, there;
  int64_t call = 0;
  for (; here == there; ++call) {
    here = next_line(mine);
    there = next_line(theirs);
  }
  return fmt::format("call {} of the step is {} here and {} on rank {}", call, here, there, rank);
}

void HostOrder::forget_record() {
  record_.reset();
  following_ = false;
}

bool HostOrder::expects(const HostEvent& event) const {
  const EventId next = events_.past();
  return following_ && record_->events.has(next) && record_->events[next] == event;
}

void HostOrder::begin() {
  events_.clear();
  whole_ = true;
  following_ = recorded();
}

EventId HostOrder::add(HostEvent event) {
  events_.push_back(std::move(event));
  return events_.last();
}

void HostOrder::drop_old(bool unleased) {
  if (events_.size() < kMostCallsBefore && (whole_ || !unleased)) return;
  events_.clear();
  whole_ = unleased;
}

HostOrder::Events HostOrder::training_calls() const {
  // A host may have evaluated before the forward pass of the step. That pass begins with the same
  // call as the evaluations did, while nothing is leased, and afterwards gathers everything that
  // was gathered before. So it begins at the last such call that is not after `latest`, the
  // earliest of the last gathers of all parameters.
  EventId first_gradient(0), begin(0);
  // The last gather of each parameter before the first gradient.
  std::map<ParamId, EventId> last;
  for (; events_.has(first_gradient); ++first_gradient) {
    const HostEvent& e = events_[first_gradient];
    if (e.kind == HostEvent::Kind::release) continue;
    if (e.kind != HostEvent::Kind::gather) break;
    for (ParamId p : e.params) last[p] = first_gradient;
  }
  EventId latest = first_gradient;
  for (auto [param, at] : last) latest = std::min(latest, at);
  int64_t leased = 0;
  for (EventId e(0); e < first_gradient && e <= latest; ++e) {
    if (leased == 0 && events_[e] == events_[EventId(0)]) begin = e;
    auto count = static_cast<int64_t>(events_[e].params.size());
    leased += events_[e].kind == HostEvent::Kind::gather ? count : -count;
  }
  return {events_.begin() + begin.number(), events_.end()};
}

}  // namespace ds
