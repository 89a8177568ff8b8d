#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "compile/delegate.h"
#include "core/base/ids.h"
#include "core/program/granules.h"
#include "core/program/program.h"

namespace ds {

// The order of a delegate host's calls, compared with the order of the recorded step. This class
// knows only the order; the engine executes the calls.
class HostOrder {
 public:
  using Events = IdVector<EventId, HostEvent>;

  bool recorded() const { return record_ != nullptr; }
  const RecordedOrder& record() const { return *record_; }
  const std::string& record_hash() const { return record_hash_; }
  void set_record(RecordedOrder record, std::string hash) {
    record_ = std::make_unique<RecordedOrder>(std::move(record));
    record_hash_ = std::move(hash);
  }
  void forget_record();

  // Returns whether every call since the last begin() was the call at that place in the record.
  bool following() const { return following_; }
  void leave() { following_ = false; }
  // Returns whether the record is being followed and its next call is this one.
  bool expects(const HostEvent& event) const;
  // Returns whether the record begins with this call.
  bool begins_with(const HostEvent& event) const {
    return record_ && record_->events[EventId(0)] == event;
  }
  // Returns whether the calls so far are the whole record.
  bool complete() const { return following_ && events_.size() == record_->events.size(); }

  // Declares that the next call is the first of a step or of an evaluation.
  void begin();
  EventId add(HostEvent event);
  // Bounds the number of calls that are kept before the first gradient of a step, because a host
  // that only evaluates makes any number of them. Drops them if there are many, or if some were
  // dropped before and no lease remains.
  void drop_old(bool unleased);
  void clear() { events_.clear(); }
  const Events& events() const { return events_; }
  // Returns whether no event was dropped.
  bool whole() const { return whole_; }
  // Returns the step's calls without those of an evaluation before it. They start at the last time
  // that the host, without a lease, made the same gather as at the very beginning, if it gathered
  // everything else again after that.
  Events training_calls() const;

  // Returns a hash that is equal for equal calls.
  static std::string hash_of(const Events& events);
  // Returns the calls as text, one in each line.
  static std::string text_of(const Events& events, const IdVector<ParamId, ParamSpec>& params);
  // Describes the first line in which two such texts differ. `rank` made the calls `theirs`.
  static std::string first_difference(std::string_view mine, std::string_view theirs, int rank);

 private:
  // Null while nothing is recorded.
  std::unique_ptr<RecordedOrder> record_;
  std::string record_hash_;
  bool following_ = false;
  Events events_;
  bool whole_ = true;
};

}  // namespace ds
