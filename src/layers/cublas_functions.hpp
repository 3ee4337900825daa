#pragma once

#include <cublas_v2.h>

#include <cstddef>

namespace weft::cuda {

/// Every call that Weft makes of cuBLAS, with cuBLAS's name and meaning. A seam like CudaFunctions: tests put a fake in
/// its place that computes on the CPU.
struct CublasFunctions {
  cublasStatus_t (*create)(cublasHandle_t*);
  cublasStatus_t (*destroy)(cublasHandle_t);
  cublasStatus_t (*set_stream)(cublasHandle_t, cudaStream_t);
  cublasStatus_t (*set_workspace)(cublasHandle_t, void*, std::size_t bytes);
  cublasStatus_t (*set_math_mode)(cublasHandle_t, cublasMath_t);
  cublasStatus_t (*gemm_strided_batched_ex)(cublasHandle_t, cublasOperation_t op_a, cublasOperation_t op_b, int m,
                                            int n, int k, void const* alpha, void const* a, cudaDataType, int lda,
                                            long long stride_a, void const* b, cudaDataType, int ldb,
                                            long long stride_b, void const* beta, void* c, cudaDataType, int ldc,
                                            long long stride_c, int batch, cublasComputeType_t, cublasGemmAlgo_t);
  char const* (*get_status_string)(cublasStatus_t);
};

/// The functions of the cuBLAS that belongs to the CUDA version that Weft was built with, as the loader finds it. The
/// first call opens the library, which stays open until the process ends. @throws Error{unsupported} that says what is
/// missing.
[[nodiscard]] CublasFunctions const& cublas_library();

}  // namespace weft::cuda
