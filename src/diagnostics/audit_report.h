#pragma once
#include <map>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "core/base/json.h"
#include "core/program/program.h"
#include "diagnostics/audit_kernel.h"

namespace ds {

// One instruction, with the verdict of the rank on which its share of the bound is largest.
struct AuditRow {
  InstrId instr;
  std::string label;
  int rank = 0;
  Verdict verdict;
};

struct AuditReport {
  // A line about the audited step: model, ranks, types and tiers.
  std::string title;
  // Why the step was skipped; "" if it was not.
  std::string ending;
  // All instructions, those with the largest shares first.
  std::vector<AuditRow> rows;

  // Returns the number of instructions that failed.
  int failed() const;
  // Returns how many instructions were not audited, by "operation (reason)".
  std::map<std::string, int> unaudited() const;
  // Returns the table with `top` rows (0: all) and every row that failed. Its last line is
  // verdict().
  std::string text(size_t top) const;
  // Returns one line, "passed: ..." or "FAILED: ...".
  std::string verdict() const;
  Json json() const;
};

// Merges the verdicts of all ranks into rows, which are equal on all ranks. Collective.
std::vector<AuditRow> merge_verdicts(const Program& program, const std::vector<Verdict>& verdicts,
                                     Communicator& comm);

}  // namespace ds
