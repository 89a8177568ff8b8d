#include "kernels/cuda/library_function.h"

#include <dlfcn.h>
#include <fmt/core.h>

#include <cstdlib>

#include "ds_plugin.h"
#include "kernels/cuda/failure.h"

namespace ds::cuda {

OpenedLibrary open_library(const char* variable, const std::vector<const char*>& files,
                           const char* name) {
  const char* given = std::getenv(variable);
  std::string reason;
  for (const char* file : given&&* given ? std::vector{given} : files) {
    if (void* object = dlopen(file, RTLD_NOW | RTLD_LOCAL)) return {object, file};
    if (reason.empty()) reason = dlerror();
  }
  refuse("there is no {}: {}", name, reason);
}

}  // namespace ds::cuda
