#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/kernel.h"

namespace ds::cuda {

// Operands, count and scalars of a launch; the rest is 0.
ElementArgs element_args(const Arguments& c);
void start_elements(Launcher& launcher, const char* entry, const ElementArgs& a);
// `bytes` of `from`, or of 0 where that is null.
void copy_bytes(Launcher& launcher, const void* from, void* to, int64_t bytes);

// A kernel of one entry of elementwise arguments; `set` adds what the operation's attributes say.
using SetElements = void (*)(ElementArgs&, const Attrs&, const Arguments&);
std::unique_ptr<Kernel> make_elements(const Query& query, std::string* refusal, const char* entry,
                                      SetElements set);

}  // namespace ds::cuda
