#pragma once
#include <string>
#include <utility>
#include <vector>

namespace ds {

class KernelRegistry;

// Applies DS_MAX_ISA to Highway's dispatch and to oneDNN, once per process. Must be called before
// the first kernel.
void limit_isa_from_environment();

// Returns everything that the bits of these kernels depend on, as names and values for the numerics
// key. `device` is Device::kind().
std::vector<std::pair<std::string, std::string>> numerics_of_kernels(const KernelRegistry& registry,
                                                                     const std::string& device);

// The facts about this machine's kernels that `libds env` prints.
struct KernelFacts {
  // `machine` is the best instruction set of this machine, `in_use` the best that kernels may use,
  // and `limit` is DS_MAX_ISA, or "" if it is not set.
  std::string machine, in_use, limit;
  // The names that DS_MAX_ISA accepts, such as "sse4, avx2 or amx".
  std::string choices;
  std::string highway, onednn, onednn_isa;
};
KernelFacts kernel_facts();

}  // namespace ds
