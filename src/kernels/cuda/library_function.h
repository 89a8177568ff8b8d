#pragma once
#include <dlfcn.h>

#include <string>
#include <vector>

namespace ds::cuda {

struct OpenedLibrary {
  void* object = nullptr;
  std::string file;
};

// The file that the environment's `variable` names, else the first of `files` that there is. Throws
// a Failure with one line.
OpenedLibrary open_library(const char* variable, const std::vector<const char*>& files,
                           const char* name);

// A function of a library that is opened at run time, by the name under which the library has it. A
// call hands the result and the name to `check`, which throws when it is an error.
template <auto check, typename Function>
struct LibraryFunction {
  const char* name;
  Function function = nullptr;
  template <typename... Args>
  void operator()(Args... args) const {
    check(function(args...), name);
  }
};

// Finds every function that library.visit() hands over. The name of the first that the file lacks;
// "": none.
template <typename Library>
std::string find_functions(Library& library, void* object) {
  std::string missing;
  library.visit([&](auto& entry) {
    entry.function = reinterpret_cast<decltype(entry.function)>(dlsym(object, entry.name));
    if (!entry.function && missing.empty()) missing = entry.name;
  });
  return missing;
}

}  // namespace ds::cuda
