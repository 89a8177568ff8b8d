#pragma once
#include <map>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "core/base/json.h"
#include "core/program/program.h"
#include "diagnostics/audit_kernel.h"

namespace ds {

// One instruction: the verdict of the rank where its share of the bound is largest.
struct AuditRow {
  InstrId instr;
  std::string label;
  int rank = 0;
  Verdict verdict;
};

struct AuditReport {
  std::string title;           // what ran
  std::string ending;          // why the step was skipped; "" if it was not
  std::vector<AuditRow> rows;  // all instructions, largest share first

  int failed() const;
  // "operation (reason)" -> how many of its instructions were not audited.
  std::map<std::string, int> unaudited() const;
  // The table with `top` rows, 0: all, and every one that failed; the last line is verdict().
  std::string text(size_t top) const;
  std::string verdict() const;  // one line: "passed: ..." or "FAILED: ..."
  Json json() const;
};

// Rows of all ranks, the same on each. Collective.
std::vector<AuditRow> merge_verdicts(const Program& program, const std::vector<Verdict>& verdicts,
                                     Communicator& comm);

}  // namespace ds
