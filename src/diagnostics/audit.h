#pragma once
#include <string>

#include "comm/communicator.h"
#include "diagnostics/audit_report.h"
#include "engine/engine.h"

namespace ds {

struct AuditRequest {
  // Number of steps to train. The last step is audited.
  int steps = 2;
  // Number of rows in the text of the report; 0: all.
  size_t top = 20;
  // The number of compute threads of a rank. If it is 0, the configuration decides; its default is
  // cores / ranks.
  int threads = 0;
};

// Parses {"steps", "top", "threads"}. Throws DS_ERROR_CONFIG for unknown keys and invalid values.
AuditRequest audit_request(const Json& document);

// Trains as the configuration says, on its text or, without a text, on random tokens, and audits
// the last step: the report has a row for each instruction of the step. Collective: all ranks must
// pass equal arguments, and get equal reports. `engine` is for the hooks of tests; its `threads`
// and `programs.infer` are overwritten.
AuditReport audit(const Json& config, const AuditRequest& request, Communicator& comm,
                  EngineOptions engine = {});

}  // namespace ds
