#pragma once
#include <optional>
#include <span>

namespace ds {

// The instruction sets of kernels. The instruction sets of x86-64 are in ascending order; arm64 has
// only neon.
enum class Isa { neon = 0, sse4 = 1, avx2 = 2, avx512 = 3, avx512_bf16 = 4, amx = 5 };
const char* isa_name(Isa isa);

// Returns the names of this architecture's instruction sets, which are the values of the
// environment variable DS_MAX_ISA.
std::span<const char* const> isa_choices();
// Returns the instruction set that DS_MAX_ISA names, or nothing if it is not set, is empty or names
// the last of isa_choices(). Throws if it is not one of isa_choices().
std::optional<Isa> isa_limit();

// Returns the best instruction set that this machine has.
Isa machine_isa();
// Returns the best instruction set that kernels may use: machine_isa(), capped by isa_limit(). It
// is part of the numerics key.
Isa effective_isa();

}  // namespace ds
