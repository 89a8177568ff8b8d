#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/base/trace.h"
#include "core/program/program.h"

namespace ds {

// Adds up the traced steps of one program, by instruction. `step` is borrowed.
class StepTimes {
 public:
  explicit StepTimes(const Program& step);
  // Spans of one run that began and ended at these times, of an instruction one or several; hands
  // out those of file transfers, which run beside the others. Throws DS_ERROR_INTERNAL when they
  // are not those of the program.
  std::vector<Trace::Span> add(std::span<const Trace::Span> spans, int64_t begin_ns,
                               int64_t end_ns);

  const Program& program() const { return step_; }
  int steps() const { return steps_; }
  double total() const { return total_; }  // seconds of all added steps
  // Of all added steps; 0 for file transfers.
  double seconds(size_t instr) const { return seconds_[instr]; }
  const std::string& label(size_t instr) const { return labels_[instr]; }

 private:
  const Program& step_;
  std::vector<double> seconds_;      // by instruction
  std::vector<std::string> labels_;  // by instruction
  std::vector<bool> expected_;       // by number of an instruction in a round: has spans
  double total_ = 0;
  int steps_ = 0;
};

// Whether it runs beside the other queues.
bool is_file_queue(Queue queue);
double seconds_of(const Trace::Span& span);

}  // namespace ds
