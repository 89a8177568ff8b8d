#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/base/trace.h"
#include "core/program/program.h"

namespace ds {

// The times of traced steps of one program, added up by instruction. The program is borrowed.
class StepTimes {
 public:
  explicit StepTimes(const Program& step);
  // Adds the spans of one run, which began and ended at the given times. An instruction may have
  // several spans. Returns the spans of file transfers, which are not added because they run in
  // parallel to other instructions. Throws DS_ERROR_INTERNAL if the spans do not match the program.
  std::vector<Trace::Span> add(std::span<const Trace::Span> spans, int64_t begin_ns,
                               int64_t end_ns);

  const Program& program() const { return step_; }
  int steps() const { return steps_; }
  // Returns the seconds of all added steps.
  double total() const { return total_; }
  // Returns the seconds of an instruction over all added steps; 0 for a file transfer.
  double seconds(size_t instr) const { return seconds_[instr]; }
  const std::string& label(size_t instr) const { return labels_[instr]; }

 private:
  const Program& step_;
  // The sums of times and the labels, by instruction.
  std::vector<double> seconds_;
  std::vector<std::string> labels_;
  // By issue number, whether the instruction must have spans.
  std::vector<bool> expected_;
  double total_ = 0;
  int steps_ = 0;
};

// Returns whether the queue is for file transfers (read or write).
bool is_file_queue(Queue queue);
double seconds_of(const Trace::Span& span);

}  // namespace ds
