#include "kernels/cuda/library_function.h"

#include <dlfcn.h>
#include <fmt/core.h>

#include <cstdlib>

#include "ds_plugin.h"
#include "kernels/cuda/failure.h"

namespace ds::cuda {

OpenedLibrary::OpenedLibrary(const char* variable, const std::vector<const char*>& files,
                             const char* name) {
  const char* given = std::getenv(variable);
  std::string reason;
  for (const char* candidate : given&&* given ? std::vector{given} : files) {
    object_ = dlopen(candidate, RTLD_NOW | RTLD_LOCAL);
    file = candidate;
    if (object_) return;
    if (reason.empty()) reason = dlerror();
  }
  refuse("there is no {}: {}", name, reason);
}

void* OpenedLibrary::find(const char* function) {
  void* found = dlsym(object_, function);
  if (!found && missing.empty()) missing = function;
  return found;
}

}  // namespace ds::cuda
