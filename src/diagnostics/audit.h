#pragma once
#include <string>

#include "comm/communicator.h"
#include "diagnostics/audit_report.h"
#include "engine/engine.h"

namespace ds {

struct AuditRequest {
  int steps = 2;    // to train; the last one is audited
  size_t top = 20;  // rows of the text; 0: all
  int threads = 0;  // compute threads a rank; 0: the configuration's, or cores / ranks
};

// {"steps", "top", "threads"}; unknown keys and values are DS_ERROR_CONFIG.
AuditRequest audit_request(const Json& document);

// Trains as the configuration says, on its text or, where it names none, on random tokens, and
// audits the last step: the report has a row for each of its instructions. Collective: all ranks
// pass equal arguments and get equal reports. `engine`: hooks of tests; threads and programs are
// set here.
AuditReport audit(const Json& config, const AuditRequest& request, Communicator& comm,
                  EngineOptions engine = {});

}  // namespace ds
