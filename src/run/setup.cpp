#include "run/setup.h"

#include <sched.h>

#include <algorithm>
#include <thread>

namespace ds {

int rank_threads(const Config& config, const Communicator& comm) {
  if (config.threads > 0) return config.threads;
  cpu_set_t cores;
  int count = sched_getaffinity(0, sizeof cores, &cores) == 0
                  ? CPU_COUNT(&cores)
                  : static_cast<int>(std::thread::hardware_concurrency());
  return std::max(1, count / comm.size());
}

void merge_patch(Json& document, const Json& patch) {
  if (!patch.is_object()) {
    document = patch;
    return;
  }
  if (!document.is_object()) document = Json::Object{};
  for (const auto& [key, value] : patch.object()) {
    if (value.is_null()) {
      std::erase_if(document.object(), [&, &name = key](const auto& member) { return member.first == name; });
      continue;
    }
    Json merged;
    if (const Json* old = document.find(key)) merged = *old;
    merge_patch(merged, value);
    document.set(key, std::move(merged));
  }
}

}  // namespace ds
