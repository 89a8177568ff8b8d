// Gives a program the version of another build of libds: it is linked instead of
// core/base/version.cpp.
#include "core/base/version.h"

namespace ds {

const char* library_version() { return "9.8.7"; }

const char* library_build() { return "9.8.7 (sources 0123456789)"; }

const char* kernels_build() { return "0123456789"; }

}  // namespace ds
