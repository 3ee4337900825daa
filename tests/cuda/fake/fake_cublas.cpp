#include "cuda/fake/fake_cublas.hpp"

#include <string>
#include <vector>

#include "cuda/fake/fake_gpu.hpp"
#include "weft/data_type.hpp"

namespace weft::test {
namespace {

struct Handle {
  cudaStream_t stream = nullptr;
  bool has_workspace = false;
};

/// Column-major, as cuBLAS has it.
struct Matrix {
  void* data;
  cudaDataType type;
  int leading;
  long long stride;

  [[nodiscard]] Matrix number(int index) const {
    auto const bytes = static_cast<long long>(type == CUDA_R_32F ? 4 : 2);
    return {static_cast<std::byte*>(data) + index * stride * bytes, type, leading, stride};
  }
  [[nodiscard]] double at(int row, int column) const {
    auto const i = static_cast<std::size_t>(row) + static_cast<std::size_t>(column) * static_cast<std::size_t>(leading);
    if (type == CUDA_R_32F) return static_cast<float const*>(data)[i];
    if (type == CUDA_R_16BF) return to_float(static_cast<BFloat16 const*>(data)[i]);
    return to_float(static_cast<Half const*>(data)[i]);
  }
  void set(int row, int column, double value) const {
    auto const i = static_cast<std::size_t>(row) + static_cast<std::size_t>(column) * static_cast<std::size_t>(leading);
    auto const rounded = static_cast<float>(value);
    if (type == CUDA_R_32F) static_cast<float*>(data)[i] = rounded;
    if (type == CUDA_R_16BF) static_cast<BFloat16*>(data)[i] = to_bfloat16(rounded);
    if (type == CUDA_R_16F) static_cast<Half*>(data)[i] = to_half(rounded);
  }
};

struct Gemm {
  bool transpose_a, transpose_b;
  int m, n, k;
  float alpha, beta;
  Matrix a, b, c;

  void run(int index) const {
    Matrix const x = a.number(index);
    Matrix const y = b.number(index);
    Matrix const z = c.number(index);
    std::vector<double> column(static_cast<std::size_t>(k));
    for (int j = 0; j < n; ++j) {
      for (int l = 0; l < k; ++l) column[static_cast<std::size_t>(l)] = transpose_b ? y.at(j, l) : y.at(l, j);
      for (int i = 0; i < m; ++i) {
        double sum = 0;
        for (int l = 0; l < k; ++l)
          sum += (transpose_a ? x.at(l, i) : x.at(i, l)) * column[static_cast<std::size_t>(l)];
        double const old = beta == 0 ? 0 : beta * z.at(i, j);  // of beta 0 cuBLAS reads nothing
        z.set(i, j, alpha * sum + old);
      }
    }
  }
  /// What cuBLAS documents as CUBLAS_STATUS_INVALID_VALUE or NOT_SUPPORTED.
  [[nodiscard]] cublasStatus_t judge() const {
    bool const fits = a.leading >= (transpose_a ? k : m) && b.leading >= (transpose_b ? n : k) && c.leading >= m;
    if (m < 0 || n < 0 || k < 0 || !fits) return CUBLAS_STATUS_INVALID_VALUE;
    bool const supported = a.type == b.type && (c.type == a.type || c.type == CUDA_R_32F);
    return supported ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
  }
};

Handle& handle_of(cublasHandle_t handle) {
  return *reinterpret_cast<Handle*>(handle);
}

cublasStatus_t create(cublasHandle_t* made) {
  *made = reinterpret_cast<cublasHandle_t>(new Handle);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t destroy(cublasHandle_t handle) {
  delete &handle_of(handle);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t set_stream(cublasHandle_t handle, cudaStream_t stream) {
  handle_of(handle) = {stream, false};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t set_workspace(cublasHandle_t handle, void* memory, std::size_t bytes) {
  handle_of(handle).has_workspace = memory != nullptr && bytes != 0;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t set_math_mode(cublasHandle_t /*handle*/, cublasMath_t /*mode*/) {
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t gemm(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n, int k,
                    void const* alpha, void const* a, cudaDataType type_a, int lda, long long stride_a, void const* b,
                    cudaDataType type_b, int ldb, long long stride_b, void const* beta, void* c, cudaDataType type_c,
                    int ldc, long long stride_c, int batch, cublasComputeType_t compute,
                    cublasGemmAlgo_t /*algorithm*/) {
  auto& gpu = FakeGpu::current();
  auto const& on = handle_of(handle);
  gpu.record("cublasGemmStridedBatchedEx", on.stream);
  if (!on.has_workspace) gpu.violate("cuBLAS would allocate its workspace");
  Gemm const product{op_a == CUBLAS_OP_T,
                     op_b == CUBLAS_OP_T,
                     m,
                     n,
                     k,
                     *static_cast<float const*>(alpha),
                     *static_cast<float const*>(beta),
                     {const_cast<void*>(a), type_a, lda, stride_a},
                     {const_cast<void*>(b), type_b, ldb, stride_b},
                     {c, type_c, ldc, stride_c}};
  auto const status = compute == CUBLAS_COMPUTE_32F ? product.judge() : CUBLAS_STATUS_NOT_SUPPORTED;
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  static_cast<void>(gpu.enqueue(on.stream, [product, batch] {
    for (int i = 0; i < batch; ++i) product.run(i);
  }));
  return CUBLAS_STATUS_SUCCESS;
}

char const* status_string(cublasStatus_t status) {
  return status == CUBLAS_STATUS_NOT_SUPPORTED ? "CUBLAS_STATUS_NOT_SUPPORTED" : "CUBLAS_STATUS_INVALID_VALUE";
}

}  // namespace

cuda::CublasFunctions const& FakeCublas::functions() {
  static constexpr cuda::CublasFunctions kTable{
      .create = create,
      .destroy = destroy,
      .set_stream = set_stream,
      .set_workspace = set_workspace,
      .set_math_mode = set_math_mode,
      .gemm_strided_batched_ex = gemm,
      .get_status_string = status_string,
  };
  return kTable;
}

}  // namespace weft::test
