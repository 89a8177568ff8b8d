#pragma once
#include <string>
#include <utility>
#include <vector>

namespace ds {

class KernelRegistry;

// Instruction sets above `limit` that neither our kernels nor oneDNN may use. Order: sse4 < avx2 < avx512 <
// avx512_bf16 < amx.
enum class Isa { sse4 = 0, avx2 = 1, avx512 = 2, avx512_bf16 = 3, amx = 4 };
const char* isa_name(Isa isa);

// The best instruction set that this machine has.
Isa machine_isa();
// The best one in use: machine_isa() capped by environment DS_MAX_ISA. Part of the numerics key. Throws when
// DS_MAX_ISA names none of the five.
Isa effective_isa();

// Applies DS_MAX_ISA to Highway's dispatch and to oneDNN, once per process, before the first kernel.
void limit_isa_from_environment();

// What the bits of these kernels depend on, for the numerics key: name and value. device: Device::kind().
std::vector<std::pair<std::string, std::string>> numerics_of_kernels(const KernelRegistry& registry,
                                                                     const std::string& device);

// What runs on this machine, for `libds env`.
struct KernelFacts {
  std::string machine, in_use, limit;  // instruction sets; limit: DS_MAX_ISA, "" when it is not set
  std::string highway, onednn, onednn_isa;
};
KernelFacts kernel_facts();

}  // namespace ds
