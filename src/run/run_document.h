#pragma once
#include <string>

#include "comm/communicator.h"
#include "core/base/json.h"
#include "core/config/config.h"
#include "run/keys.h"

namespace ds {

// Returns the document of a run: `config`, merged into the document of the resumed run if any.
// Collective.
Json run_document(const Json& config, Communicator& comm, const std::string& resume);

// Parses the document. Errors of a resumed run also name its config.json, the source of most keys.
Config parse_run_document(const Json& document, int world, const std::string& resume);

// Returns the URL of the group that a run joins, before the group exists: the key `communicator` of
// config; otherwise the same key of the run that `resume` names, if this host sees the run's
// folder; otherwise "env". Throws DS_ERROR_CONFIG if the value is not a string.
std::string run_communicator(const Json& config, const std::string& resume);

// Returns the folder of the run that run.resume continues, or "" if there is none. Collective.
std::string run_to_resume(const RunKeys& keys, Communicator& comm);

}  // namespace ds
