#include "exec/step_times.h"

#include <algorithm>
#include <cstdint>

#include "core/base/error.h"
#include "exec/issue_number.h"

namespace ds {

bool is_file_queue(Queue queue) { return queue == Queue::read || queue == Queue::write; }

double seconds_of(const Trace::Span& span) {
  return static_cast<double>(span.end_ns - span.begin_ns) * 1e-9;
}

// Marks the issue numbers that must have a span in every run.
StepTimes::StepTimes(const Program& step)
    : step_(step), seconds_(step.instrs.size(), 0), labels_(step.instrs.size()) {
  for (Position at; at != step.end(); at = step.next(at)) {
    const auto number = static_cast<size_t>(issue_number(step, at));
    if (number >= expected_.size()) expected_.resize(number + 1);
    expected_[number] = step.takes_part(at) && !is_file_queue(step.instrs[at.instr].queue);
  }
}

// Every instruction that takes part must have at least one span, and all other spans must be file
// transfers. Without this check, missing or foreign spans would silently falsify the sums.
std::vector<Trace::Span> StepTimes::add(std::span<const Trace::Span> spans, int64_t begin_ns,
                                        int64_t end_ns) {
  std::vector<Trace::Span> files;
  std::vector<bool> missing = expected_;
  for (const Trace::Span& span : spans) {
    if (span.track == queue_name(Queue::read) || span.track == queue_name(Queue::write)) {
      files.push_back(span);
      continue;
    }
    const auto number = static_cast<size_t>(span.number);
    const size_t index = issued_at(step_, std::max<int64_t>(span.number, 0)).instr.index();
    const std::string word = span.name.substr(0, span.name.find(' '));
    const bool known = span.number >= 0 && number < expected_.size() && expected_[number] &&
                       word == step_.instrs[InstrId(index)].def->name;
    ensure(known, "span {} '{}' is not an instruction of a step", span.number, span.name);
    seconds_[index] += seconds_of(span);
    labels_[index] = span.name;
    missing[number] = false;
  }
  const auto left = std::ranges::count(missing, true);
  ensure(left == 0, "{} of {} instructions have no spans", left,
         std::ranges::count(expected_, true));
  total_ += static_cast<double>(end_ns - begin_ns) * 1e-9;
  ++steps_;
  return files;
}

}  // namespace ds
