#pragma once
#include <string>
#include <vector>

namespace ds::cuda {

// A library that is opened at run time: the file that the environment variable `variable` names,
// otherwise the first of `files` that can be opened. The constructor throws a Failure with a
// one-line message if no file can be opened. A struct of LibraryFunctions derives from this class.
struct OpenedLibrary {
  OpenedLibrary(const char* variable, const std::vector<const char*>& files, const char* name);

  // Returns the address of a function, or null if the file lacks it.
  void* find(const char* function);

  std::string file;
  // The first function that was not found; empty if all were found.
  std::string missing;

 private:
  void* object_ = nullptr;
};

// A function of an OpenedLibrary, with its name. A call passes the result and the name to `check`,
// which throws if the result is an error.
template <auto check, typename Function>
struct LibraryFunction {
  LibraryFunction(OpenedLibrary& library, const char* name)
      : name(name), function(reinterpret_cast<Function>(library.find(name))) {}

  template <typename... Args>
  void operator()(Args... args) const {
    check(function(args...), name);
  }

  const char* name;
  Function function;
};

}  // namespace ds::cuda
