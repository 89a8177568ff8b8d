// Stands in for core/base/version.cpp in a program that claims to be another build of libds.
#include "core/base/version.h"

namespace ds {

const char* library_version() { return "9.8.7"; }

const char* library_build() { return "9.8.7 (sources 0123456789)"; }

const char* kernels_build() { return "0123456789"; }

}  // namespace ds
