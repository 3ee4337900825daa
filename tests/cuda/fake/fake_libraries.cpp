// In the place of src/layers/cublas_library.cpp and src/collectives/nccl/nccl_open.cpp, for programs on a FakeGpu.
#include "collectives/nccl/nccl_library.hpp"
#include "cuda/fake/fake_cublas.hpp"
#include "cuda/fake/fake_nccl.hpp"

namespace weft {

cuda::CublasFunctions const& cuda::cublas_library() {
  return test::FakeCublas::functions();
}

std::shared_ptr<nccl::NcclLibrary const> nccl::NcclLibrary::open(Config const& /*config*/) {
  return test::FakeNccl::libraries().nccl;
}

}  // namespace weft
