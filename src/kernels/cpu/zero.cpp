// The `zero` instruction. A zero of any element type is bytes of 0, so this file is not compiled
// once per instruction set.
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/cpu.h"

namespace ds::cpu {
namespace {

// Sets all bytes of every output to 0.
void zero(const KernelContext& c) {
  for (const TensorView& out : c.out) {
    std::byte* data = out.as<std::byte>();
    int64_t bytes = out.numel() * size_of(out.dtype);
    for_blocks(c.team, bytes, int64_t{1} << 20, [=](int64_t begin, int64_t end) {
      std::memset(data + begin, 0, static_cast<size_t>(end - begin));
    });
  }
}

}  // namespace

void add_zero(KernelRegistry& registry) { add_kernel(registry, "zero", zero); }

}  // namespace ds::cpu
