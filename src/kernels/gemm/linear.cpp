// Registers the bf16 products for machines with AVX512_BF16 or AMX. On other machines,
// refuse_type() leaves the products to the next family.
#include <string>

#include "core/base/dtype.h"
#include "core/device/cpu_features.h"
#include "kernels/cpu/linear_cross_entropy.h"
#include "kernels/cpu/linear_few.h"
#include "kernels/gemm/gemm.h"
#include "kernels/kernel.h"
#include "kernels/matrix_product.h"

namespace ds {
namespace gemm {
namespace {

std::string refuse_type(DType dtype) {
  if (dtype != DS_DTYPE_BF16) return std::string(dtype_name(dtype)) + " elements";
  static const Isa isa = effective_isa();
  return isa >= Isa::avx512_bf16 ? "" : std::string(isa_name(isa)) + " has no bf16 dot product";
}

std::string refuse(const KernelQuery& query) {
  std::string type = refuse_type(query.in[0]);
  return type.empty() ? mixed_dtypes(query) : type;
}

std::string refuse_head(const KernelQuery& query) { return cpu::refuse_head(query, refuse_type); }

void linear_cross_entropy(const KernelContext& c) { cpu::linear_cross_entropy(c, multiply); }
void linear_cross_entropy_dx(const KernelContext& c) { cpu::linear_cross_entropy_dx(c, multiply); }

template <MatrixProduct (*product)(const KernelContext&)>
void run(const KernelContext& c) {
  multiply(product(c), c.team);
}

// With at most four rows, packing the weight would not pay.
void linear(const KernelContext& c) {
  if (cpu::has_few_rows(c)) return cpu::linear_few(c);
  run<product_of_linear>(c);
}

}  // namespace
}  // namespace gemm

void register_gemm(KernelRegistry& registry) {
  registry.add({"linear", "gemm", gemm::linear, gemm::refuse});
  registry.add({"linear_dx", "gemm", gemm::run<product_of_linear_dx>, gemm::refuse});
  registry.add({"linear_dw", "gemm", gemm::run<product_of_linear_dw>, gemm::refuse});
  registry.add({"linear_cross_entropy", "gemm", gemm::linear_cross_entropy, gemm::refuse_head});
  registry.add(
      {"linear_cross_entropy_dx", "gemm", gemm::linear_cross_entropy_dx, gemm::refuse_head});
}

}  // namespace ds
