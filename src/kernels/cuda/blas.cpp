// Problem: matrix products take most of the time of a step, and cuBLASLt has the fastest kernels
// for them. But the library is half a gigabyte large, so many machines lack it. It is opened at run
// time, and the numerics key says whether it is used.
//
// Invariant: bits depend only on shapes, types, alignments and the library. The algorithm is the
// first one that the library's heuristic proposes for them; nothing is timed. Split sums are added
// in a fixed order (reduction schemes NONE and COMPUTE_TYPE), and each queue has its own workspace,
// without which cuBLAS does not promise equal bits. If the library has no algorithm for a product,
// this folder's own kernel computes the product; its bits depend on the same properties only.
//
// Algorithm: the library's matrices are column-major. The bytes of a row-major matrix, read as
// column-major, are its transpose, so c = a b is computed as c^T = b^T a^T: the operands are
// exchanged, and no byte moves.
#include "kernels/cuda/blas.h"

#include <cublasLt.h>
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/base/dtype.h"
#include "ds_plugin.h"
#include "kernels/cuda/driver.h"
#include "kernels/cuda/kernel.h"
#include "kernels/cuda/library_function.h"
#include "kernels/cuda/product.h"
#include "kernels/matrix_product.h"

namespace ds::cuda {
namespace {

void check_blas(cublasStatus_t status, const char* call);

template <typename Function>
using Entry = LibraryFunction<check_blas, Function>;

struct Library : OpenedLibrary {
  Library() : OpenedLibrary("DS_CUDA_BLAS", {"libcublasLt.so.13", "libcublasLt.so"}, "cuBLASLt") {}
  Entry<decltype(&::cublasLtGetVersion)> cublasLtGetVersion{*this, "cublasLtGetVersion"};
  Entry<decltype(&::cublasLtCreate)> cublasLtCreate{*this, "cublasLtCreate"};
  Entry<decltype(&::cublasLtDestroy)> cublasLtDestroy{*this, "cublasLtDestroy"};
  Entry<decltype(&::cublasLtGetStatusString)> cublasLtGetStatusString{*this,
                                                                      "cublasLtGetStatusString"};
  Entry<decltype(&::cublasLtMatmulDescCreate)> cublasLtMatmulDescCreate{*this,
                                                                        "cublasLtMatmulDescCreate"};
  Entry<decltype(&::cublasLtMatmulDescDestroy)> cublasLtMatmulDescDestroy{
      *this, "cublasLtMatmulDescDestroy"};
  Entry<decltype(&::cublasLtMatmulDescSetAttribute)> cublasLtMatmulDescSetAttribute{
      *this, "cublasLtMatmulDescSetAttribute"};
  Entry<decltype(&::cublasLtMatrixLayoutCreate)> cublasLtMatrixLayoutCreate{
      *this, "cublasLtMatrixLayoutCreate"};
  Entry<decltype(&::cublasLtMatrixLayoutDestroy)> cublasLtMatrixLayoutDestroy{
      *this, "cublasLtMatrixLayoutDestroy"};
  Entry<decltype(&::cublasLtMatmulPreferenceCreate)> cublasLtMatmulPreferenceCreate{
      *this, "cublasLtMatmulPreferenceCreate"};
  Entry<decltype(&::cublasLtMatmulPreferenceDestroy)> cublasLtMatmulPreferenceDestroy{
      *this, "cublasLtMatmulPreferenceDestroy"};
  Entry<decltype(&::cublasLtMatmulPreferenceSetAttribute)> cublasLtMatmulPreferenceSetAttribute{
      *this, "cublasLtMatmulPreferenceSetAttribute"};
  Entry<decltype(&::cublasLtMatmulAlgoGetHeuristic)> cublasLtMatmulAlgoGetHeuristic{
      *this, "cublasLtMatmulAlgoGetHeuristic"};
  Entry<decltype(&::cublasLtMatmul)> cublasLtMatmul{*this, "cublasLtMatmul"};
};

Library find_library() {
  Library library;
  if (!library.missing.empty())
    refuse("cuBLASLt '{}' has no function {}", library.file, library.missing);
  return library;
}

const Library& library() {
  static const Library opened = find_library();
  return opened;
}

void check_blas(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw Failure(status == CUBLAS_STATUS_ALLOC_FAILED ? DS_PLUGIN_OUT_OF_MEMORY : DS_PLUGIN_FAILED,
                fmt::format("{}: {}", call, library().cublasLtGetStatusString.function(status)));
}

// An object of the library, with the function that destroys it.
template <typename Object>
using Owned = std::unique_ptr<std::remove_pointer_t<Object>, cublasStatus_t (*)(Object)>;

cudaDataType_t type_of(DType dtype) {
  return dtype == DS_DTYPE_F32 ? CUDA_R_32F : dtype == DS_DTYPE_BF16 ? CUDA_R_16BF : CUDA_R_16F;
}

// Returns the alignment of an address, at most 16 bytes. An algorithm needs no more than 16 to load
// whole vectors, and a larger value would make bits depend on where an operand happens to be. Null
// is treated as aligned.
uint32_t alignment(const void* address) {
  constexpr uintptr_t kMost = 16;
  auto at = reinterpret_cast<uintptr_t>(address);
  return static_cast<uint32_t>(at == 0 ? kMost : std::min(at & (~at + 1), kMost));
}

// The descriptors and the algorithm of a product of one shape. The only address that they hold is
// that of the last product's bias.
struct Plan {
  Owned<cublasLtMatmulDesc_t> matmul{nullptr, nullptr};
  Owned<cublasLtMatrixLayout_t> first{nullptr, nullptr}, second{nullptr, nullptr},
      result{nullptr, nullptr};
  cublasLtMatmulAlgo_t algorithm{};
  // Whether this folder's own kernel computes the product, because the library has no algorithm.
  bool own = false;
};

template <typename Value>
void set(cublasLtMatmulDesc_t matmul, cublasLtMatmulDescAttributes_t which, Value value) {
  library().cublasLtMatmulDescSetAttribute(matmul, which, &value, sizeof value);
}

// Returns the layout of a row-major matrix [rows, columns] whose rows are `stride` elements apart.
// To the library, it is a column-major matrix [columns, rows].
Owned<cublasLtMatrixLayout_t> layout(DType dtype, int64_t rows, int64_t columns, int64_t stride) {
  cublasLtMatrixLayout_t made = nullptr;
  library().cublasLtMatrixLayoutCreate(&made, type_of(dtype), static_cast<uint64_t>(columns),
                                       static_cast<uint64_t>(rows), stride);
  return {made, library().cublasLtMatrixLayoutDestroy.function};
}

// The state of a device's matrix products: the library's handle, and a plan for each combination of
// shape, alignments and type of computation. Threads of several ranks may share a device, so a
// mutex guards the state. It is held until the product has been enqueued, because the address of a
// bias is stored in the plan.
class Products {
 public:
  Products() { library().cublasLtCreate(&handle_); }
  ~Products() { library().cublasLtDestroy.function(handle_); }

  void run(const MatrixProduct& p, DriverStream& stream) {
    std::lock_guard lock(mutex_);
    const Plan& plan = plan_of(p, stream.tf32() && p.shape.dtype == DS_DTYPE_F32);
    if (plan.own) return own_multiply(stream, p);
    if (p.bias) set(plan.matmul.get(), CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
    const float one = 1, beta = p.shape.store == Store::added ? 1 : 0;
    library().cublasLtMatmul(handle_, plan.matmul.get(), &one, p.b, plan.first.get(), p.a,
                             plan.second.get(), &beta, p.c, plan.result.get(), p.c,
                             plan.result.get(), &plan.algorithm, stream.product_scratch,
                             static_cast<size_t>(kProductScratch), stream.handle());
  }

 private:
  using Key = std::tuple<MatrixShape, std::array<uint32_t, 4>, bool>;

  const Plan& plan_of(const MatrixProduct& p, bool tf32) {
    const Key key{
        p.shape, {alignment(p.a), alignment(p.b), alignment(p.c), alignment(p.bias)}, tf32};
    auto found = plans_.find(key);
    if (found == plans_.end()) found = plans_.emplace(key, make_plan(p, tf32)).first;
    return found->second;
  }

  Plan make_plan(const MatrixProduct& p, bool tf32) {
    const MatrixShape& s = p.shape;
    Plan plan;
    cublasLtMatmulDesc_t matmul = nullptr;
    library().cublasLtMatmulDescCreate(
        &matmul, tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F);
    plan.matmul = {matmul, library().cublasLtMatmulDescDestroy.function};
    set(matmul, CUBLASLT_MATMUL_DESC_TRANSA, s.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(matmul, CUBLASLT_MATMUL_DESC_TRANSB, s.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    if (s.bias) {
      set(matmul, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
      set(matmul, CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
      set(matmul, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(s.result()));
    }
    plan.first =
        s.transpose_b ? layout(s.dtype, s.n, s.k, s.ldb) : layout(s.dtype, s.k, s.n, s.ldb);
    plan.second =
        s.transpose_a ? layout(s.dtype, s.k, s.m, s.lda) : layout(s.dtype, s.m, s.k, s.lda);
    plan.result = layout(s.result(), s.m, s.n, s.ldc);
    choose(p, plan);
    return plan;
  }

  void choose(const MatrixProduct& p, Plan& plan) {
    cublasLtMatmulPreference_t made = nullptr;
    library().cublasLtMatmulPreferenceCreate(&made);
    Owned<cublasLtMatmulPreference_t> preference(
        made, library().cublasLtMatmulPreferenceDestroy.function);
    auto prefer = [&](cublasLtMatmulPreferenceAttributes_t which, auto value) {
      library().cublasLtMatmulPreferenceSetAttribute(made, which, &value, sizeof value);
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(kProductScratch));
    // With split sums, cuBLASLt may add the bias after it has rounded the sums to 16 bits.
    const bool split = !p.bias || p.shape.result() == DS_DTYPE_F32;
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
           static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_NONE |
                                 (split ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE : 0)));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment(p.b));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment(p.a));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment(p.c));
    // There is no preference for the alignment of a bias, so the alignment of the result is limited
    // to that of the bias.
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, std::min(alignment(p.c), alignment(p.bias)));
    cublasLtMatmulHeuristicResult_t best{};
    int count = 0;
    const cublasStatus_t status = library().cublasLtMatmulAlgoGetHeuristic.function(
        handle_, plan.matmul.get(), plan.first.get(), plan.second.get(), plan.result.get(),
        plan.result.get(), made, 1, &best, &count);
    if (status != CUBLAS_STATUS_NOT_SUPPORTED) check_blas(status, "cublasLtMatmulAlgoGetHeuristic");
    plan.own = status != CUBLAS_STATUS_SUCCESS || count == 0 || best.state != CUBLAS_STATUS_SUCCESS;
    plan.algorithm = best.algo;
  }

  cublasLtHandle_t handle_ = nullptr;
  std::mutex mutex_;
  std::map<Key, Plan> plans_;
};

void multiply_by_blas(Launcher& launcher, const MatrixProduct& product) {
  if (product.shape.m == 0 || product.shape.n == 0) return;
  auto* stream = dynamic_cast<DriverStream*>(&launcher);
  ensure(stream != nullptr, "a product of cuBLASLt needs a stream of the driver");
  Device& device = *stream->device();
  Device::Scope scope(device);
  device.part<Products>().run(product, *stream);
}

}  // namespace

// Falls back to this folder's own kernel if the library cannot be opened.
std::string use_blas() {
  try {
    const size_t version = library().cublasLtGetVersion.function();
    use_products(multiply_by_blas);
    return fmt::format("cuBLASLt-{}", version);
  } catch (const Failure&) {
    return "own-products";
  }
}

}  // namespace ds::cuda
