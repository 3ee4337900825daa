#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include "layers/cublas_functions.hpp"
#include "weft/error.hpp"

namespace weft::cuda {
namespace {

CublasFunctions open() {
  auto const name = fmt::format("libcublas.so.{}", CUDART_VERSION / 1000);
  void* const handle = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (handle == nullptr) {
    throw Error(ErrorCode::unsupported,
                fmt::format("layers on a GPU need cuBLAS of CUDA {}: {}; install it, or add its folder to "
                            "LD_LIBRARY_PATH",
                            CUDART_VERSION / 1000, ::dlerror()));
  }
  CublasFunctions cublas{};
  auto const need = [&](char const* call, auto& function) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(handle, call));
    if (function == nullptr) throw Error(ErrorCode::unsupported, fmt::format("{} lacks {}", name, call));
  };
  need("cublasCreate_v2", cublas.create);
  need("cublasDestroy_v2", cublas.destroy);
  need("cublasSetStream_v2", cublas.set_stream);
  need("cublasSetWorkspace_v2", cublas.set_workspace);
  need("cublasSetMathMode", cublas.set_math_mode);
  need("cublasGemmStridedBatchedEx", cublas.gemm_strided_batched_ex);
  need("cublasGetStatusString", cublas.get_status_string);
  return cublas;
}

}  // namespace

CublasFunctions const& cublas_library() {
  static CublasFunctions const kLibrary = open();
  return kLibrary;
}

}  // namespace weft::cuda
