// Registers the products of bf16 on machines with AVX512_BF16 and without AMX.
#include "kernels/cpu/features.h"
#include "kernels/gemm/gemm.h"

namespace ds {
namespace gemm {
namespace {

std::string refuse(const KernelQuery& query) {
  if (query.in[0] != DS_DTYPE_BF16) return std::string(dtype_name(query.in[0])) + " elements";
  if (std::string mixed = mixed_dtypes(query); !mixed.empty()) return mixed;
  static const Isa isa = effective_isa();
  if (isa == Isa::amx) return "AMX is faster, and oneDNN has it";
  return isa == Isa::avx512_bf16 ? "" : std::string(isa_name(isa)) + " has no bf16 dot product";
}

template <MatrixProduct (*product)(const KernelContext&)>
void add(KernelRegistry& registry, const std::string& op) {
  registry.add({op, "gemm", [](const KernelContext& c) { multiply(product(c), c.team); }, refuse});
}

}  // namespace
}  // namespace gemm

void register_gemm(KernelRegistry& registry) {
  gemm::add<product_of_linear>(registry, "linear");
  gemm::add<product_of_linear_dx>(registry, "linear_dx");
  gemm::add<product_of_linear_dw>(registry, "linear_dw");
}

}  // namespace ds
