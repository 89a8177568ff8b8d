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

// One op of a queue, or one instruction; everything is of one step.
struct ProfileRow {
  std::string queue, name;
  double calls = 0;
  double seconds = 0;
  double limit = 0;  // least seconds: Peak::seconds of every launch
  double flops = 0, bytes = 0;
  bool beside =
      false;  // a file transfer: runs beside the other queues, its time is no part of the step
};

struct ProfileTable {
  std::vector<ProfileRow> rows;  // longest first
  double step = 0;               // seconds
  double between = 0;            // seconds of a step in which no instruction runs
  Peak peak;

  // Lines with a head: rows, time between, the whole step.
  std::string text() const;
  Json json() const;
};

// Adds up the traced steps of one program that ran at its bound. `step` is borrowed.
class StepProfile {
 public:
  explicit StepProfile(const Program& step) : times_(step) {}
  // Spans of one run that began and ended at these times. Throws DS_ERROR_INTERNAL when they are
  // not those of the program.
  void add(std::span<const Trace::Span> spans, int64_t begin_ns, int64_t end_ns);
  // Means over the added steps: a row for each op of a queue, or for each instruction.
  ProfileTable table(const Peak& peak, bool by_instruction = false) const;

 private:
  StepTimes times_;
  std::vector<ProfileRow> files_;  // by label
};

}  // namespace ds
