#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "core/base/attrs.h"
#include "kernels/cuda/element_args.h"
#include "kernels/cuda/kernel.h"

namespace ds::cuda {

// Returns ElementArgs with the operands, count, wide, scalars and leaf of a launch. The other
// fields are 0.
ElementArgs element_args(const Arguments& c);
// Launches an entry with one thread for every kShare elements.
void start_elements(Launcher& launcher, const char* entry, const ElementArgs& a);
// Enqueues a copy of `bytes` bytes on the device, or sets them to 0 if `from` is null.
void copy_bytes(Launcher& launcher, const void* from, void* to, int64_t bytes);

using SetElements = void (*)(ElementArgs&, const Attrs&, const Arguments&);
// Creates a kernel that launches the entry of the operation's name with ElementArgs. `set` fills in
// the fields that depend on the operation's attributes. The template has the signature of
// KernelRow::make.
std::unique_ptr<Kernel> make_elements(const Query& query, SetElements set);
template <SetElements set = nullptr>
std::unique_ptr<Kernel> make_elements(const Query& query, std::string*) {
  return make_elements(query, set);
}

}  // namespace ds::cuda
