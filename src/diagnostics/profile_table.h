#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "core/base/trace.h"
#include "core/program/program.h"
#include "diagnostics/peak.h"
#include "exec/step_times.h"

namespace ds {

// One op of a queue, or one instruction. All numbers are per step.
struct ProfileRow {
  std::string queue, name;
  double calls = 0;
  double seconds = 0;
  // The shortest possible time, in seconds: the sum of Peak::seconds() over its launches.
  double limit = 0;
  double flops = 0, bytes = 0;
  // Whether the row is a file transfer. Files are transferred beside the other queues, so this time
  // is not part of the step's time.
  bool beside = false;
};

struct ProfileTable {
  // The rows with the most seconds come first.
  std::vector<ProfileRow> rows;
  // Seconds of a step.
  double step = 0;
  // Seconds of a step minus those of its instructions, without file transfers; 0 if these take
  // longer, because queues overlap.
  double between = 0;
  Peak peak;

  // Returns the table: a header, the rows, the time between instructions, and the step.
  std::string text() const;
  Json json() const;
};

// The sums over traced steps of one program, in which every micro-step had the largest number of
// tokens (Program::bound). `step` is borrowed.
class StepProfile {
 public:
  explicit StepProfile(const Program& step) : times_(step) {}
  // Adds the spans of one run, which began and ended at the given times. Throws DS_ERROR_INTERNAL
  // if the spans do not match the program.
  void add(std::span<const Trace::Span> spans, int64_t begin_ns, int64_t end_ns);
  // Returns means over the added steps, with a row for each op of a queue or for each instruction.
  ProfileTable table(const Peak& peak, bool by_instruction = false) const;

 private:
  StepTimes times_;
  // File transfers, one row for each span.
  std::vector<ProfileRow> files_;
};

}  // namespace ds
