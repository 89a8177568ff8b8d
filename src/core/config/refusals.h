#pragma once
#include <set>
#include <string>
#include <vector>

#include "core/base/error.h"

namespace ds {

// The refusals of a document, collected so that all of them can be listed.
struct ConfigRefusals {
  std::vector<Error> errors;
  // Keys whose values are unknown because they were refused or misspelt. A later check may fail
  // only because such a key has its default, so its refusal is dropped if it names one of these
  // keys.
  std::set<std::string> doubtful;
};

// The possible causes of a refusal: only the key itself, or also the values of other keys.
enum class Causes { itself, others };

// Keeps a refusal. With Causes::others, drops it if it names a doubtful key, which may be its
// cause. Appends to its message the anchor in docs/reference/config.md of its key or, if not empty,
// of the key `described`.
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
