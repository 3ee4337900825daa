#include <string>

#include "layers/layers_impl.hpp"

namespace weft::cuda {
namespace {

constexpr std::size_t kWorkspaceBytes = std::size_t{64} << 20;  // cuBLAS asks for 32 MiB on Hopper, for less elsewhere

cudaDataType type_of(DataType type) {
  if (type == DataType::f32) return CUDA_R_32F;
  return type == DataType::bf16 ? CUDA_R_16BF : CUDA_R_16F;
}

cublasOperation_t operation(Product::Operand const& operand) {
  return operand.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
}

}  // namespace

Cublas::Cublas(Stream const& stream)
    : stream_(stream),
      cublas_(cublas_library()),
      workspace_(allocate(kWorkspaceBytes, DataType::u8, stream.device().index)) {
  DeviceGuard const guard(stream.device().index);
  check(cublas_.create(&handle_), "cublasCreate");
  try {
    check(cublas_.set_stream(handle_, handle_of(stream)), "cublasSetStream");
    // Comes after setting the stream, which takes the workspace away.
    check(cublas_.set_workspace(handle_, workspace_.data(), kWorkspaceBytes), "cublasSetWorkspace");
    // The contract asks for it: otherwise sums of 16-bit products may pass through 16 bits.
    auto const mode = static_cast<cublasMath_t>(CUBLAS_DEFAULT_MATH | CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION);
    check(cublas_.set_math_mode(handle_, mode), "cublasSetMathMode");
  } catch (...) {
    static_cast<void>(cublas_.destroy(handle_));
    throw;
  }
}

Cublas::~Cublas() {
  static_cast<void>(cublas_.destroy(handle_));
}

void Cublas::check(cublasStatus_t status, char const* call) const {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  auto const code = status == CUBLAS_STATUS_ALLOC_FAILED ? ErrorCode::out_of_memory : ErrorCode::system;
  throw Error(code, std::string(call) + ": " + cublas_.get_status_string(status));
}

// cuBLAS takes matrices by columns and we have rows, so it sees every matrix transposed: Cᵀ = op(B)ᵀ·op(A)ᵀ.
void Cublas::multiply(Product const& p) const {
  if (p.m == 0 || p.n == 0 || p.batch == 0) return;
  DeviceGuard const guard(stream_.device().index);
  auto const leading = [](Product::Operand const& operand) { return static_cast<int>(operand.leading); };
  auto const stride = [](Product::Operand const& operand) { return static_cast<long long>(operand.stride); };
  check(cublas_.gemm_strided_batched_ex(
            handle_, operation(p.b), operation(p.a), static_cast<int>(p.n), static_cast<int>(p.m),
            static_cast<int>(p.k), &p.alpha, p.b.data, type_of(p.b.type), leading(p.b), stride(p.b), p.a.data,
            type_of(p.a.type), leading(p.a), stride(p.a), &p.beta, p.c.data, type_of(p.c.type), leading(p.c),
            stride(p.c), static_cast<int>(p.batch), CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
        "cublasGemmStridedBatchedEx");
}

}  // namespace weft::cuda
