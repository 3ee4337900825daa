#pragma once

#include "layers/cublas_functions.hpp"

namespace weft::test {

/// A cuBLAS on the FakeGpu's streams: products are plain loops on the host, summed in double and rounded once. Calls
/// that cuBLAS would refuse, or that read outside a matrix's rows, are violations of the FakeGpu.
struct FakeCublas {
  [[nodiscard]] static cuda::CublasFunctions const& functions();
};

}  // namespace weft::test
