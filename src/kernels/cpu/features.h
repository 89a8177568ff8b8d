#pragma once
#include <string>
#include <utility>
#include <vector>

namespace ds {

class KernelRegistry;

// The instruction sets of kernels. Those of x86-64 are in order; arm64 has neon alone.
enum class Isa { neon = 0, sse4 = 1, avx2 = 2, avx512 = 3, avx512_bf16 = 4, amx = 5 };
const char* isa_name(Isa isa);

// The best instruction set that this machine has.
Isa machine_isa();
// The best one in use: machine_isa() capped by environment DS_MAX_ISA. Part of the numerics key.
// Throws when DS_MAX_ISA names none of this architecture.
Isa effective_isa();

// Applies DS_MAX_ISA to Highway's dispatch and to oneDNN, once per process, before the first
// kernel.
void limit_isa_from_environment();

// What the bits of these kernels depend on, for the numerics key: name and value. device:
// Device::kind().
std::vector<std::pair<std::string, std::string>> numerics_of_kernels(const KernelRegistry& registry,
                                                                     const std::string& device);

// What runs on this machine, for `libds env`.
struct KernelFacts {
  std::string machine, in_use, limit;  // instruction sets; limit: DS_MAX_ISA, "" when it is not set
  std::string choices;  // those that DS_MAX_ISA may name, such as "sse4, avx2 or amx"
  std::string highway, onednn, onednn_isa;
};
KernelFacts kernel_facts();

}  // namespace ds
