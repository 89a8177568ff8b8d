#pragma once
#include <set>
#include <string>
#include <vector>

#include "core/base/error.h"

namespace ds {

// Collects the errors of a document. Without such a collection, parse_config throws the first one.
struct ConfigRefusals {
  std::vector<Error> errors;
  // Keys whose values are unknown because they were refused or misspelt. A refusal that names one
  // of them only follows from the first error, so it is dropped.
  std::set<std::string> doubtful;
};

// The reasons for which a part of the parse may refuse a key: its own value, or other keys.
enum class Causes { itself, others };

// Keeps a refusal unless it follows from another one (ConfigRefusals::doubtful). Its message ends
// with the anchor of docs/reference/config.md that describes its key or, if given, the key
// `described`.
void keep_refusal(ConfigRefusals& refusals, Causes causes, const Error& error,
                  const std::string& described);

// Runs a part of the parse and keeps its refusal, if it throws one. Other errors pass through.
template <typename Part>
void collect(ConfigRefusals& refusals, Causes causes, Part part,
             const std::string& described = "") {
  try {
    part();
  } catch (const Error& error) {
    if (error.status() != DS_ERROR_CONFIG) throw;
    keep_refusal(refusals, causes, error, described);
  }
}

}  // namespace ds
