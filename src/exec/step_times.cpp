#include "exec/step_times.h"

#include "core/base/error.h"

namespace ds {

bool is_file_queue(Queue queue) { return queue == Queue::read || queue == Queue::write; }

double seconds_of(const Trace::Span& span) { return static_cast<double>(span.end_ns - span.begin_ns) * 1e-9; }

StepTimes::StepTimes(const Program& step)
    : step_(step), seconds_(step.instrs.size(), 0), labels_(step.instrs.size()) {
  for (Position at; at != step.end(); at = step.next(at)) {
    if (step.takes_part(at) && !is_file_queue(step.instrs[at.instr].queue))
      inline_.push_back(at.instr.index());
  }
}

std::vector<Trace::Span> StepTimes::add(std::span<const Trace::Span> spans, int64_t begin_ns,
                                        int64_t end_ns) {
  std::vector<Trace::Span> files;
  size_t at = 0;
  for (const Trace::Span& span : spans) {
    if (span.track == queue_name(Queue::read) || span.track == queue_name(Queue::write)) {
      files.push_back(span);
      continue;
    }
    const size_t index = at < inline_.size() ? inline_[at] : step_.instrs.size();
    const std::string word = span.name.substr(0, span.name.find(' '));
    const bool known = at < inline_.size() && word == step_.instrs[InstrId(index)].def->name;
    ensure(known, "span {} '{}' is none of the {} instructions of a step", at, span.name, inline_.size());
    seconds_[index] += seconds_of(span);
    labels_[index] = span.name;
    ++at;
  }
  ensure(at == inline_.size(), "{} of {} instructions have spans", at, inline_.size());
  total_ += static_cast<double>(end_ns - begin_ns) * 1e-9;
  ++steps_;
  return files;
}

}  // namespace ds
