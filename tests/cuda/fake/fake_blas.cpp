// Implements in plain loops the part of cuBLASLt that libds_cuda.so calls, for the fake driver;
// DS_CUDA_BLAS names this library. Like cuBLASLt, it expects column-major matrices in device memory
// and runs in the order of a stream.
#include <cublasLt.h>
#include <dlfcn.h>

#include <bit>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "core/base/dtype.h"
#include "core/base/half.h"

namespace {

struct Matmul {
  int32_t first_transposed = CUBLAS_OP_N, second_transposed = CUBLAS_OP_N;
  uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
  bool tf32 = false;
};
struct Layout {
  cudaDataType_t type;
  uint64_t rows, columns;
  int64_t stride;
};

template <typename Function>
Function of_driver(const char* name) {
  static void* const driver = dlopen(std::getenv("DS_CUDA_DRIVER"), RTLD_NOW | RTLD_LOCAL);
  return reinterpret_cast<Function>(dlsym(driver, name));
}

void* reach(const void* address) {
  static const auto function = of_driver<void* (*)(void*)>("fake_cuda_reach");
  return function(const_cast<void*>(address));
}

double get(const void* data, cudaDataType_t type, int64_t i) {
  if (type == CUDA_R_32F) return static_cast<double>(static_cast<const float*>(data)[i]);
  if (type == CUDA_R_16BF)
    return static_cast<double>(static_cast<float>(static_cast<const ds::bf16*>(data)[i]));
  return static_cast<double>(static_cast<float>(static_cast<const ds::f16*>(data)[i]));
}

// Rounds to the nearest number with TF32's 10-bit mantissa.
double to_tf32(double x) {
  auto bits = std::bit_cast<uint32_t>(static_cast<float>(x));
  bits = (bits + 0xfffu + (bits >> 13 & 1u)) & ~0x1fffu;
  return static_cast<double>(std::bit_cast<float>(bits));
}

void put(void* data, cudaDataType_t type, int64_t i, float value) {
  if (type == CUDA_R_32F) static_cast<float*>(data)[i] = value;
  if (type == CUDA_R_16BF) static_cast<ds::bf16*>(data)[i] = ds::bf16(value);
  if (type == CUDA_R_16F) static_cast<ds::f16*>(data)[i] = ds::f16(value);
}

struct Work {
  Matmul matmul;
  Layout first, second, result;
  const void *a, *b;
  void* c;
  float alpha, beta;

  void run() const {
    bool first_turned = matmul.first_transposed == CUBLAS_OP_T,
         second_turned = matmul.second_transposed == CUBLAS_OP_T;
    auto inner = static_cast<int64_t>(first_turned ? first.rows : first.columns);
    for (int64_t column = 0; column < static_cast<int64_t>(result.columns); ++column) {
      for (int64_t row = 0; row < static_cast<int64_t>(result.rows); ++row) {
        double sum = 0;
        for (int64_t k = 0; k < inner; ++k) {
          int64_t i = first_turned ? row * first.stride + k : k * first.stride + row;
          int64_t j = second_turned ? k * second.stride + column : column * second.stride + k;
          const double x = get(a, first.type, i), y = get(b, second.type, j);
          sum += matmul.tf32 ? to_tf32(x) * to_tf32(y) : x * y;
        }
        int64_t at = column * result.stride + row;
        double value = static_cast<double>(alpha) * sum;
        if (beta != 0) value += static_cast<double>(beta) * get(c, result.type, at);
        if (matmul.epilogue == CUBLASLT_EPILOGUE_BIAS) value += get(matmul.bias, result.type, row);
        put(c, result.type, at, static_cast<float>(value));
      }
    }
  }
};

template <typename Value>
bool store(Value& to, const void* from, size_t size) {
  if (size != sizeof to) return false;
  std::memcpy(&to, from, size);
  return true;
}

}  // namespace

size_t cublasLtGetVersion() { return 130002; }

cublasStatus_t cublasLtCreate(cublasLtHandle_t* out) {
  *out = reinterpret_cast<cublasLtHandle_t>(new int(0));
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete reinterpret_cast<int*>(handle);
  return CUBLAS_STATUS_SUCCESS;
}

const char* cublasLtGetStatusString(cublasStatus_t) { return "an error of the fake library"; }

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* out, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  const bool tf32 = compute == CUBLAS_COMPUTE_32F_FAST_TF32;
  if ((compute != CUBLAS_COMPUTE_32F && !tf32) || scale != CUDA_R_32F)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  auto made = new Matmul();
  made->tf32 = tf32;
  *out = reinterpret_cast<cublasLtMatmulDesc_t>(made);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t matmul) {
  delete reinterpret_cast<Matmul*>(matmul);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t matmul,
                                              cublasLtMatmulDescAttributes_t what,
                                              const void* value, size_t size) {
  auto& own = *reinterpret_cast<Matmul*>(matmul);
  bool stored = false;
  int32_t type = 0;
  if (what == CUBLASLT_MATMUL_DESC_TRANSA) stored = store(own.first_transposed, value, size);
  if (what == CUBLASLT_MATMUL_DESC_TRANSB) stored = store(own.second_transposed, value, size);
  if (what == CUBLASLT_MATMUL_DESC_EPILOGUE) stored = store(own.epilogue, value, size);
  if (what == CUBLASLT_MATMUL_DESC_BIAS_POINTER) stored = store(own.bias, value, size);
  if (what == CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE) stored = store(type, value, size);
  return stored ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* out, cudaDataType type,
                                          uint64_t rows, uint64_t columns, int64_t stride) {
  if (stride < static_cast<int64_t>(rows)) return CUBLAS_STATUS_INVALID_VALUE;
  *out = reinterpret_cast<cublasLtMatrixLayout_t>(new Layout{type, rows, columns, stride});
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete reinterpret_cast<Layout*>(layout);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* out) {
  *out = reinterpret_cast<cublasLtMatmulPreference_t>(new int(0));
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete reinterpret_cast<int*>(preference);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t,
                                                    cublasLtMatmulPreferenceAttributes_t what,
                                                    const void*, size_t size) {
  size_t wanted =
      what == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES ? sizeof(uint64_t) : sizeof(uint32_t);
  return size == wanted ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

// Reports that no algorithm exists for results with 3, 5 or 7 rows (in the library's layout), each
// in another of the ways in which the library may report it.
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t result, cublasLtMatrixLayout_t,
                                              cublasLtMatmulPreference_t, int wanted,
                                              cublasLtMatmulHeuristicResult_t results[],
                                              int* count) {
  const uint64_t rows = reinterpret_cast<Layout*>(result)->rows;
  *count = wanted > 0 && rows != 5 ? 1 : 0;
  if (wanted > 0) results[0] = {};
  if (rows == 7) results[0].state = CUBLAS_STATUS_NOT_SUPPORTED;
  return rows == 3 ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t matmul, const void* alpha,
                              const void* first, cublasLtMatrixLayout_t first_layout,
                              const void* second, cublasLtMatrixLayout_t second_layout,
                              const void* beta, const void* c, cublasLtMatrixLayout_t c_layout,
                              void* result, cublasLtMatrixLayout_t result_layout,
                              const cublasLtMatmulAlgo_t*, void* workspace, size_t workspace_bytes,
                              cudaStream_t stream) {
  const uint64_t rows = reinterpret_cast<Layout*>(result_layout)->rows;
  if (rows == 3 || rows == 5 || rows == 7) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (c != result || c_layout != result_layout) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (workspace_bytes > 0 && reinterpret_cast<uintptr_t>(workspace) % 256 != 0)
    return CUBLAS_STATUS_INVALID_VALUE;
  auto layout = [](cublasLtMatrixLayout_t of) { return *reinterpret_cast<Layout*>(of); };
  auto* work = new Work{*reinterpret_cast<Matmul*>(matmul),
                        layout(first_layout),
                        layout(second_layout),
                        layout(result_layout),
                        reach(first),
                        reach(second),
                        reach(result),
                        *static_cast<const float*>(alpha),
                        *static_cast<const float*>(beta)};
  work->matmul.bias = reach(work->matmul.bias);
  const Layout &x = work->first, &y = work->second, &z = work->result;
  bool turned = work->matmul.first_transposed == CUBLAS_OP_T,
       other = work->matmul.second_transposed == CUBLAS_OP_T;
  bool fits = (turned ? x.columns : x.rows) == z.rows &&
              (other ? y.rows : y.columns) == z.columns &&
              (turned ? x.rows : x.columns) == (other ? y.columns : y.rows);
  if (!fits) {
    delete work;
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  static const auto enqueue =
      of_driver<void (*)(void*, void (*)(void*), void (*)(void*), void*)>("fake_cuda_enqueue");
  enqueue(
      stream, [](void* data) { static_cast<Work*>(data)->run(); },
      [](void* data) { delete static_cast<Work*>(data); }, work);
  return CUBLAS_STATUS_SUCCESS;
}
