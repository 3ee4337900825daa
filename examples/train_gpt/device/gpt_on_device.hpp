#pragma once

#include <cstddef>
#include <memory>

#include <weft/cuda_layers.hpp>
#include <weft/stream.hpp>

#include "device/device_tensors.hpp"
#include "gpt_config.hpp"

namespace train_gpt {

class DeviceWorkspace;

/// Ids in GPU memory, i32: `targets` follow `inputs`, one each, in sequences of `seq`.
struct DeviceBatch {
  weft::ConstBufferView inputs;
  weft::ConstBufferView targets;
  std::size_t seq = 0;
};

/// GptModel on a GPU: the same tensors, the same order of forward and backward. Every function only enqueues on the
/// stream and can be recorded in a CUDA graph. Activations are of the type that is trained; what is summed is summed in
/// f32, and the logits are f32. Not thread-safe.
class GptOnDevice {
 public:
  struct Settings {
    int max_batch = 1;
    bool recompute = false;
    weft::DataType type = weft::DataType::f32;  ///< of parameters and gradients
  };

  GptOnDevice(GptConfig const& config, Settings const& settings, weft::Stream const& stream);
  ~GptOnDevice();
  GptOnDevice(GptOnDevice const&) = delete;
  GptOnDevice& operator=(GptOnDevice const&) = delete;

  /// Scores of each row's next byte, f32; valid until the next call.
  [[nodiscard]] weft::ConstBufferView logits(weft::ConstBufferView inputs, std::size_t seq, DeviceTensors& tensors);
  /// `loss`, one f32: mean cross-entropy in nats per byte.
  void forward(DeviceBatch const& batch, DeviceTensors& tensors, weft::BufferView loss);
  /// Gradients of share·scale·loss; `scale`: one f32 in GPU memory. Consumes the last forward()'s activations.
  void backward(DeviceBatch const& batch, DeviceTensors& tensors, float share, weft::ConstBufferView scale);

 private:
  void attention_forward(std::size_t layer, std::size_t rows, std::size_t seq, DeviceTensors& tensors);
  void mlp_forward_hidden(std::size_t layer, std::size_t rows, DeviceTensors& tensors);
  void mlp_forward_output(std::size_t layer, std::size_t rows, DeviceTensors& tensors);
  void head_backward(DeviceBatch const& batch, float share, weft::ConstBufferView scale, DeviceTensors& tensors);
  void mlp_backward(std::size_t layer, std::size_t rows, DeviceTensors& tensors);
  void attention_backward(std::size_t layer, std::size_t rows, std::size_t seq, DeviceTensors& tensors);
  void embedding_backward(DeviceBatch const& batch, DeviceTensors& tensors);
  [[nodiscard]] weft::cuda::AttentionShape heads(std::size_t rows, std::size_t seq) const;

  GptConfig config_;
  std::size_t width_;
  std::size_t max_rows_;
  weft::cuda::Layers layers_;
  std::unique_ptr<DeviceWorkspace> work_;
};

}  // namespace train_gpt
