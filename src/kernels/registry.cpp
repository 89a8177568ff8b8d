// Dispatch: an op is run by the first implementation that accepts it. An op has few
// implementations, and programs look them up when they are prepared, so a linear search is enough.
#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "kernels/kernel.h"

namespace ds {
namespace {

// Returns why the implementation does not run the query, or "" if it does.
std::string refusal(const KernelImpl& impl, const KernelQuery& query) {
  if (impl.device != query.device)
    return fmt::format("runs on {}, not {}", impl.device, query.device);
  return impl.refuse ? impl.refuse(query) : "";
}

}  // namespace

void KernelRegistry::add(KernelImpl impl) { impls_.push_back(std::move(impl)); }

const KernelImpl& KernelRegistry::find(const KernelQuery& query) const {
  for (const KernelImpl& impl : impls_) {
    if (impl.op == query.op && refusal(impl, query).empty()) return impl;
  }
  std::string reasons;
  for (const std::string& line : explain(query)) reasons += (reasons.empty() ? "" : "; ") + line;
  raise(DS_ERROR_UNSUPPORTED, "no kernel runs '{}' ({})", query.op,
        reasons.empty() ? "none is registered" : reasons);
}

std::vector<std::string> KernelRegistry::explain(const KernelQuery& query) const {
  std::vector<std::string> lines;
  for (const KernelImpl& impl : impls_) {
    if (impl.op != query.op) continue;
    std::string reason = refusal(impl, query);
    lines.push_back(impl.name + ": " + (reason.empty() ? "accepts it" : reason));
  }
  return lines;
}

}  // namespace ds
