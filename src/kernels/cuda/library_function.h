#pragma once

namespace ds::cuda {

// A function of a library that is opened at run time, by the name under which the library has it. A call
// hands the result and the name to `check`, which throws when it is an error.
template <auto check, typename Function>
struct LibraryFunction {
  const char* name;
  Function function = nullptr;
  template <typename... Args>
  void operator()(Args... args) const {
    check(function(args...), name);
  }
};

}  // namespace ds::cuda
