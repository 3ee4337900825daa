// The layers' kernels have no public interface, so they are launched in the same way as the trainer does.

#include "cuda/cases.hpp"
#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/model/bias_gelu.hpp"
#include "kernels/cuda/model/columns.hpp"
#include "kernels/cuda/model/cross_entropy.hpp"
#include "kernels/cuda/model/dropout.hpp"
#include "kernels/cuda/model/layer_norm.hpp"
#include "runtime/cuda/check.hpp"

namespace weft::perf {
namespace {

namespace kc = kernels::cuda;

/// Activations, their gradients, and what goes with them.
struct Layer {
  std::size_t rows, width;
  Buffer x, y, dy, dx, w, b, gradients, mean, rstd, parts, targets;

  Layer(std::size_t row_count, std::size_t columns)
      : rows(row_count),
        width(columns),
        x(matrix()),
        y(matrix()),
        dy(matrix()),
        dx(matrix()),
        w(cuda::allocate(columns, DataType::bf16)),
        b(cuda::allocate(columns, DataType::bf16)),
        gradients(cuda::allocate(2 * columns, DataType::f32)),
        mean(cuda::allocate(row_count, DataType::f32)),
        rstd(cuda::allocate(row_count, DataType::f32)),
        parts(cuda::allocate(2 * columns * ((row_count + kc::kSlabRows - 1) / kc::kSlabRows), DataType::f32)),
        targets(cuda::allocate(row_count, DataType::i32)) {}

  [[nodiscard]] Buffer matrix() const { return random_memory(rows * width, DataType::bf16); }
  [[nodiscard]] std::uint32_t columns() const { return static_cast<std::uint32_t>(width); }
  static kc::TensorPointer at(Buffer const& buffer) { return {buffer.data(), buffer.dtype()}; }
  static float* floats(Buffer const& buffer) { return static_cast<float*>(buffer.data()); }

  template <typename Body>
  static void launch(Body const& body, std::size_t blocks, Stream const& stream) {
    cuda::check(kc::launch(body, static_cast<unsigned>(blocks), cuda::handle_of(stream)), "launch of a kernel");
  }
  template <typename Source>
  void sum_columns(Source const& source, Stream const& stream) const {
    using Body = kc::ColumnSumsBody<Source>;
    auto const grid = Body::grid(rows, columns());
    launch(Body{source, rows, columns(), floats(parts)}, grid.blocks(), stream);
    finish_columns(grid.slabs, Source::kOutputs, stream);
  }
  void finish_columns(std::uint32_t slabs, std::uint32_t outputs, Stream const& stream) const {
    kc::FinishColumnsBody finish{floats(parts), slabs, outputs, columns(), {}, 1};
    for (std::size_t i = 0; i < outputs; ++i) finish.out[i] = {floats(gradients) + i * width, DataType::f32};
    launch(finish, finish.blocks(), stream);
  }
};

CaseMaker layer_case(std::string const& name, std::size_t rows, std::size_t width, double bytes_each,
                     void (*run)(Layer const&, Stream const&)) {
  return {name, [=] {
            auto const layer = std::make_shared<Layer>(rows, width);
            return Case{name, rows * width, bytes_each * static_cast<double>(rows * width),
                        [layer, run](Stream const& stream) { run(*layer, stream); }};
          }};
}

void layer_norm(Layer const& l, Stream const& stream) {
  Layer::launch(kc::LayerNormBody{l.at(l.y), l.at(l.x), l.at(l.w), l.at(l.b), l.floats(l.mean), l.floats(l.rstd),
                                  l.columns(), 1e-5F},
                l.rows, stream);
}
void layer_norm_backward(Layer const& l, Stream const& stream) {
  kc::LayerNormInputBody const input{l.at(l.dx),       l.at(l.dy),       l.at(l.x),   l.at(l.w),
                                     l.floats(l.mean), l.floats(l.rstd), l.columns(), true};
  kc::launch_layer_norm_gradient(input, l.rows, l.floats(l.parts), [&](auto const& body, unsigned slabs) {
    Layer::launch(body, slabs, stream);
    l.finish_columns(slabs, 2, stream);
  });
}
void gelu(Layer const& l, Stream const& stream) {
  Layer::launch(kc::BiasActivationBody<kernels::Gelu>{l.at(l.y), l.at(l.x), l.at(l.b), l.columns()}, l.rows, stream);
}
void gelu_backward(Layer const& l, Stream const& stream) {
  l.sum_columns(kc::BiasActivationGradient<kernels::Gelu>{l.at(l.dx), l.at(l.dy), l.at(l.x), l.at(l.b)}, stream);
}
void dropout_add(Layer const& l, Stream const& stream) {
  Layer::launch(kc::BiasDropoutAddBody{l.at(l.y), l.at(l.x), l.at(l.b), l.at(l.dx),
                                       kc::Dropout::with(0.1, 1, 0, nullptr), l.columns()},
                l.rows, stream);
}
void dropout_backward(Layer const& l, Stream const& stream) {
  l.sum_columns(kc::BiasDropoutGradient{l.at(l.dx), l.at(l.dy), kc::Dropout::with(0.1, 1, 0, nullptr)}, stream);
}
void cross_entropy(Layer const& l, Stream const& stream) {
  auto const* const targets = static_cast<std::int32_t const*>(l.targets.data());
  Layer::launch(kc::CrossEntropyBody{l.at(l.x), targets, l.columns(), l.floats(l.mean), l.floats(l.rstd)}, l.rows,
                stream);
  Layer::launch(kc::MeanLossBody{l.floats(l.mean), targets, static_cast<std::uint32_t>(l.rows), l.floats(l.gradients),
                                 l.floats(l.gradients) + 1},
                1, stream);
}
void cross_entropy_backward(Layer const& l, Stream const& stream) {
  auto const* const targets = static_cast<std::int32_t const*>(l.targets.data());
  Layer::launch(
      kc::CrossEntropyGradientBody{
          l.at(l.dx), l.at(l.x), targets, l.floats(l.rstd), l.floats(l.gradients) + 1, {}, l.columns()},
      l.rows, stream);
}

}  // namespace

std::vector<CaseMaker> model_cases(std::size_t rows, std::size_t width, std::size_t vocabulary) {
  // The number is bytes per element: 2 (bf16) for every matrix that is read or written.
  return {layer_case("layer norm bf16", rows, width, 4, layer_norm),
          layer_case("layer norm bf16, backward", rows, width, 8, layer_norm_backward),
          layer_case("bias + GELU bf16", rows, width, 4, gelu),
          layer_case("bias + GELU bf16, backward", rows, width, 6, gelu_backward),
          layer_case("bias + dropout + add bf16", rows, width, 6, dropout_add),
          layer_case("bias + dropout + add bf16, backward", rows, width, 4, dropout_backward),
          layer_case("softmax cross-entropy bf16", rows / 4, vocabulary, 2, cross_entropy),
          layer_case("softmax cross-entropy bf16, backward", rows / 4, vocabulary, 4, cross_entropy_backward)};
}

}  // namespace weft::perf
