#include <algorithm>
#include <random>
#include <span>

#include "cuda/cases.hpp"
#include "weft/convert.hpp"
#include "weft/grad_scaler.hpp"
#include "weft/optimizer.hpp"

namespace weft::perf {
namespace {

/// Equal tensors, their gradients and an optimizer.
struct Training {
  std::vector<Buffer> memory;
  std::vector<BufferView> parameters, gradients;
  std::unique_ptr<Optimizer> optimizer;
  std::unique_ptr<GradScaler> scaler;
  std::unique_ptr<cuda::GradientList> list;

  Training(std::size_t tensors, std::size_t elements, DataType type, OptimizerOptions const& options,
           OptimizerSettings const& settings) {
    // Allocated in two pieces, because ten thousand allocations would take seconds.
    for (auto* views : {&parameters, &gradients}) {
      std::size_t const stride = (elements + 7) / 8 * 8;  // tensors begin at 16 bytes, as allocators give them
      memory.push_back(random_memory(tensors * stride, type));
      for (std::size_t i = 0; i < tensors; ++i) views->push_back(memory.back().view().slice(i * stride, elements));
    }
    optimizer = std::make_unique<Optimizer>(parameters, options, settings);
    scaler = std::make_unique<GradScaler>(GradScalerOptions{}, parameters.front().device);
    list = std::make_unique<cuda::GradientList>(gradients);
  }
};

CaseMaker step_case(std::string const& name, std::size_t elements, DataType type, OptimizerOptions const& options,
                    OptimizerSettings const& settings, double bytes_each, double bar = 0) {
  return {name, [=] {
            auto const training = std::make_shared<Training>(1, elements, type, options, settings);
            return Case{name, elements, bytes_each * static_cast<double>(elements),
                        [training](Stream const& stream) {
                          training->optimizer->step(training->gradients, {.stream = &stream});
                        },
                        bar};
          }};
}

/// Measures norm and finiteness, then the step that unscales, clips, updates, rounds and zeroes, then the loss scale.
CaseMaker amp_case(std::string const& name, std::size_t elements, DataType type, double bytes_each) {
  return {
      name, [=] {
        auto const training =
            std::make_shared<Training>(1, elements, type, AdamWOptions{}, OptimizerSettings{.zero_gradients = true});
        auto const run = [training](Stream const& stream) {
          auto inputs = training->scaler->inputs();
          training->list->measure(
              {.inv_scale = inputs.inv_scale, .max_norm = 1, .found_inf = training->scaler->found_inf_view()}, stream);
          inputs.clip = training->list->clip();
          inputs.stream = &stream;
          training->optimizer->step(training->gradients, inputs);
          training->scaler->update(&stream);
        };
        return Case{name, elements, bytes_each * static_cast<double>(elements), run, 0.92};
      }};
}

/// A case for one operation of a list of gradients.
CaseMaker list_case(std::string const& name, std::size_t elements, DataType type, double bytes_each,
                    void (*call)(cuda::GradientList&, GradScaler&, Stream const&)) {
  return {name, [=] {
            auto const memory = std::make_shared<Buffer>(random_memory(elements, type));
            BufferView const view = memory->view();
            auto const list = std::make_shared<cuda::GradientList>(std::span(&view, 1));
            auto const scaler = std::make_shared<GradScaler>(GradScalerOptions{}, view.device);
            return Case{name, elements, bytes_each * static_cast<double>(elements),
                        [memory, list, scaler, call](Stream const& stream) { call(*list, *scaler, stream); }};
          }};
}

CaseMaker pack_case(std::size_t elements) {
  std::string const name = "bucket pack f32 to bf16, 64 tensors";
  return {name, [=] {
            auto const from = std::make_shared<Buffer>(random_memory(elements, DataType::f32));
            auto const to = std::make_shared<Buffer>(cuda::allocate(elements, DataType::bf16));
            std::vector<BufferView> tensors;
            std::vector<BufferView> slices;
            for (std::size_t i = 0; i < 64; ++i) {
              tensors.push_back(from->view().slice(i * (elements / 64), elements / 64));
              slices.push_back(to->view().slice(i * (elements / 64), elements / 64));
            }
            auto const list = std::make_shared<cuda::CopyList>(tensors, slices);
            return Case{name, elements, 6.0 * static_cast<double>(elements),
                        [from, to, list](Stream const& stream) { list->run(stream, 0.5F); }};
          }};
}

}  // namespace

Buffer random_memory(std::size_t count, DataType type) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 0.01F);
  std::vector<float> values(std::min<std::size_t>(count, std::size_t{1} << 20));
  for (float& value : values) value = normal(random);
  Buffer const stored = Buffer::host(values.size(), type);
  convert(BufferView(std::span(values)), stored.view());
  Buffer memory = cuda::allocate(count, type);
  Stream stream = cuda::make_stream();
  for (std::size_t first = 0; first < count; first += values.size()) {
    std::size_t const piece = std::min(values.size(), count - first);
    cuda::copy(memory.view().slice(first, piece), stored.view().slice(0, piece), stream);
  }
  stream.synchronize();
  return memory;
}

std::vector<CaseMaker> optimizer_cases(std::size_t elements) {
  using enum DataType;
  OptimizerSettings const plain;
  OptimizerSettings const packed{.state = StateType::block8};
  auto const measure = [](cuda::GradientList& list, GradScaler& /*scaler*/, Stream const& stream) {
    list.measure({}, stream);
  };
  auto const unscale = [](cuda::GradientList& list, GradScaler& scaler, Stream const& stream) {
    list.unscale_and_check(scaler.inputs().inv_scale, scaler.found_inf_view(), stream);
  };
  return {step_case("AdamW f32", elements, f32, AdamWOptions{}, plain, 28, 0.92),
          // Gradients read twice and zeroed, masters and moments read and written, parameters written.
          amp_case("AMP step f32: norm, clip, zero", elements, f32, 12 + 24),
          amp_case("AMP step bf16: masters, norm, clip, zero", elements, bf16, 6 + 24 + 2),
          step_case("AdamW f32, 8-bit state", elements, f32, AdamWOptions{}, packed, 16),
          step_case("SGD with momentum f32", elements, f32, SgdOptions{.momentum = 0.9}, plain, 20),
          step_case("Lion f32", elements, f32, LionOptions{}, plain, 20),
          step_case("Adagrad f32", elements, f32, AdagradOptions{}, plain, 20),
          step_case("Lamb f32", elements, f32, LambOptions{}, plain, 24 + 16),
          list_case("norm f32", elements, f32, 4, measure), list_case("norm bf16", elements, bf16, 2, measure),
          list_case("unscale and check f32", elements, f32, 8, unscale),
          list_case("unscale and check bf16", elements, bf16, 4, unscale), pack_case(elements)};
}

CaseMaker many_tensors_case(std::size_t tensors, std::size_t elements) {
  std::string const name = "AdamW f32, " + std::to_string(tensors) + " tensors of " + std::to_string(elements);
  return {name, [=] {
            auto const training =
                std::make_shared<Training>(tensors, elements, DataType::f32, AdamWOptions{}, OptimizerSettings{});
            return Case{name, tensors * elements, 28.0 * static_cast<double>(tensors * elements),
                        [training](Stream const& stream) {
                          training->optimizer->step(training->gradients, {.stream = &stream});
                        }};
          }};
}

}  // namespace weft::perf
