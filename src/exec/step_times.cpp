#include "exec/step_times.h"

#include "core/base/error.h"

namespace ds {

bool is_file_queue(Queue queue) { return queue == Queue::read || queue == Queue::write; }

double seconds_of(const Trace::Span& span) { return static_cast<double>(span.end_ns - span.begin_ns) * 1e-9; }

namespace {

Queue queue_of(const Trace::Span& span) {
  for (int q = 0; q < kQueues; ++q) {
    if (span.track == queue_name(static_cast<Queue>(q))) return static_cast<Queue>(q);
  }
  raise(DS_ERROR_INTERNAL, "no queue has the track '{}'", span.track);
}

}  // namespace

StepTimes::StepTimes(const Program& step)
    : step_(step), seconds_(step.instrs.size(), 0), labels_(step.instrs.size()) {
  for (Position at; at != step.end(); at = step.next(at)) {
    const Queue queue = step.instrs[at.instr].queue;
    if (step.takes_part(at) && !is_file_queue(queue)) run_[queue].push_back(at.instr.index());
  }
}

std::vector<Trace::Span> StepTimes::add(std::span<const Trace::Span> spans, int64_t begin_ns,
                                        int64_t end_ns) {
  std::vector<Trace::Span> files;
  PerQueue<size_t> seen{};
  for (const Trace::Span& span : spans) {
    const auto queue = queue_of(span);
    if (is_file_queue(queue)) {
      files.push_back(span);
      continue;
    }
    const std::vector<size_t>& all = run_[queue];
    const size_t at = seen[queue]++;
    const std::string word = span.name.substr(0, span.name.find(' '));
    const bool known = at < all.size() && word == step_.instrs[InstrId(all[at])].def->name;
    ensure(known, "span {} '{}' of the queue {} is none of its {} instructions of a step", at, span.name,
           span.track, all.size());
    seconds_[all[at]] += seconds_of(span);
    labels_[all[at]] = span.name;
  }
  for (int q = 0; q < kQueues; ++q) {
    const auto queue = static_cast<Queue>(q);
    ensure(seen[queue] == run_[queue].size(), "{} of {} instructions of the queue {} have spans", seen[queue],
           run_[queue].size(), queue_name(queue));
  }
  total_ += static_cast<double>(end_ns - begin_ns) * 1e-9;
  ++steps_;
  return files;
}

}  // namespace ds
