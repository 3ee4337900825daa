#pragma once

#include <optional>

#include "kernels/cuda/chunk.hpp"
#include "kernels/cuda/model/columns.hpp"
#include "kernels/cuda/model/dropout.hpp"
#include "kernels/cuda/model/layer_norm.hpp"
#include "layers/cublas_functions.hpp"
#include "optim/cuda/gpu.hpp"
#include "weft/cuda_layers.hpp"

namespace weft::cuda {

/// A product of row-major matrices, or `batch` of them: C[m, n] = alpha·op(A)[m, k]·op(B)[k, n] + beta·C.
struct Product {
  struct Operand {
    void* data;
    DataType type;
    std::size_t leading;     ///< elements from row to row
    std::size_t stride = 0;  ///< elements from matrix to matrix
    bool transposed = false;
  };
  Operand a, b, c;
  std::size_t m, n, k;
  float alpha = 1;
  float beta = 0;
  std::size_t batch = 1;
};

/// A cuBLAS handle for one stream, with a workspace of its own, because what cuBLAS would allocate itself cannot be
/// captured.
class Cublas {
 public:
  explicit Cublas(Stream const& stream);
  ~Cublas();
  Cublas(Cublas const&) = delete;
  Cublas& operator=(Cublas const&) = delete;

  void multiply(Product const& product) const;

 private:
  void check(cublasStatus_t status, char const* call) const;

  Stream stream_;
  CublasFunctions const& cublas_;
  Buffer workspace_;
  cublasHandle_t handle_ = nullptr;
};

class Layers::Impl {
 public:
  Impl(Stream const& stream, Limits const& limits);
  Impl(Stream const& stream, Limits const& limits, BufferView scratch);

  /// The handle for `call`'s products. @throws Error{unsupported} where there is none.
  [[nodiscard]] Cublas const& cublas(char const* call) const;
  [[nodiscard]] Device device() const noexcept { return machine_.device(); }

  template <typename Body>
  void launch(Body const& body, std::size_t blocks) const {
    machine_.launch(body, blocks, &stream_);
  }

  /// Sums the columns of a matrix of rows × width into `first` and `second` (may be empty).
  template <typename Source>
  void sum_columns(char const* call, Source const& source, std::size_t rows, std::size_t width, float keep,
                   BufferView first, BufferView second = {}) const {
    using Body = kernels::cuda::ColumnSumsBody<Source>;
    check_limits(call, rows, width);
    auto const columns = static_cast<std::uint32_t>(width);
    auto const grid = Body::grid(rows, columns);
    auto* const parts = static_cast<float*>(parts_);
    launch(Body{source, rows, columns, parts}, grid.blocks());
    finish_columns(static_cast<std::uint32_t>(Source::kOutputs), grid.slabs, columns, keep, first, second);
  }
  void layer_norm_gradient(kernels::cuda::LayerNormInputBody const& input, std::size_t rows, BufferView dw,
                           BufferView db, float keep) const;

 private:
  void finish_columns(std::uint32_t outputs, std::uint32_t slabs, std::uint32_t width, float keep, BufferView first,
                      BufferView second) const;
  void check_limits(char const* call, std::size_t rows, std::size_t width) const;

  Stream stream_;
  Limits limits_;
  Gpu machine_;
  std::optional<Cublas> cublas_{};
  Buffer memory_{};
  void* parts_ = nullptr;  ///< memory for partial sums over rows
};

/// Checks what a call was given, on the way to a kernel.
class Arguments {
 public:
  Arguments(char const* call, Device device) : call_(call), device_(device) {}

  /// A tensor of f32, bf16 or f16.
  [[nodiscard]] kernels::cuda::TensorPointer tensor(ConstBufferView view, std::size_t count, char const* name) const;
  /// The same, where an empty view stands for no tensor.
  [[nodiscard]] kernels::cuda::TensorPointer optional(ConstBufferView view, std::size_t count, char const* name) const;
  [[nodiscard]] float* floats(ConstBufferView view, std::size_t count, char const* name) const;
  [[nodiscard]] std::int32_t const* ids(ConstBufferView view, std::size_t count, char const* name) const;
  void require(bool holds, char const* what) const;
  /// The number of rows of a matrix of `width` columns, in which no row may be cut short.
  [[nodiscard]] std::size_t rows(ConstBufferView view, std::size_t width, char const* name) const;
  [[nodiscard]] kernels::cuda::Dropout dropout(Dropout const& dropout) const;

 private:
  void check(ConstBufferView view, std::size_t count, char const* name) const;
  [[noreturn]] void refuse(ConstBufferView view, char const* name, std::string const& wanted, bool type = false) const;

  char const* call_;
  Device device_;
};

}  // namespace weft::cuda
