#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include <weft/cuda.hpp>

#include "device/gpt_on_device.hpp"
#include "gpt_model.hpp"

namespace train_gpt {

/// What a step takes to the GPU and brings back, at addresses that stay, so that a graph's copies find it. The host
/// writes and reads its side while the GPU is through with the step before.
class StepBuffers {
 public:
  StepBuffers(std::size_t passes, std::size_t rows, std::size_t seq, int device)
      : rows_(rows),
        seq_(seq),
        host_ids_(weft::cuda::allocate_pinned(2 * passes * rows, weft::DataType::i32)),
        ids_(weft::cuda::allocate(2 * passes * rows, weft::DataType::i32, device)),
        host_lr_(weft::cuda::allocate_pinned(1, weft::DataType::f32)),
        lr_(weft::cuda::allocate(1, weft::DataType::f32, device)),
        losses_(weft::cuda::allocate(passes, weft::DataType::f32, device)),
        host_losses_(weft::cuda::allocate_pinned(passes, weft::DataType::f32)),
        host_overflow_(weft::cuda::allocate_pinned(1, weft::DataType::f32)) {}

  /// Batches of `rows` bytes each.
  void write(std::span<Batch const> batches, double lr) {
    auto* to = host_ids_.as<std::int32_t>().data();
    for (Batch const& batch : batches) {
      to = std::copy(batch.inputs.begin(), batch.inputs.end(), to);
      to = std::copy(batch.targets.begin(), batch.targets.end(), to);
    }
    host_lr_.as<float>()[0] = static_cast<float>(lr);
  }
  void enqueue_upload(weft::Stream const& stream) {
    weft::cuda::copy(ids_.view(), host_ids_.view(), stream);
    weft::cuda::copy(lr_.view(), host_lr_.view(), stream);
  }
  void enqueue_download(weft::BufferView overflow, weft::Stream const& stream) {
    weft::cuda::copy(host_losses_.view(), losses_.view(), stream);
    weft::cuda::copy(host_overflow_.view(), overflow, stream);
  }

  [[nodiscard]] DeviceBatch batch(std::size_t pass) const {
    return {ids_.view().slice(2 * pass * rows_, rows_), ids_.view().slice((2 * pass + 1) * rows_, rows_), seq_};
  }
  [[nodiscard]] weft::BufferView loss(std::size_t pass) const { return losses_.view().slice(pass, 1); }
  [[nodiscard]] float const* lr() const { return static_cast<float const*>(lr_.data()); }

  /// Of the last step, once the GPU is through with it.
  [[nodiscard]] std::span<float const> losses() const { return host_losses_.as<float>(); }
  [[nodiscard]] bool overflowed() const { return host_overflow_.as<float>()[0] != 0; }

  /// The first ids, for forward passes between steps. Enqueues; `text` may go.
  [[nodiscard]] weft::ConstBufferView upload_text(std::span<std::uint8_t const> text, weft::Stream const& stream) {
    std::copy(text.begin(), text.end(), host_ids_.as<std::int32_t>().begin());
    weft::cuda::copy(ids_.view().slice(0, text.size()), host_ids_.view().slice(0, text.size()), stream);
    return ids_.view().slice(0, text.size());
  }

 private:
  std::size_t rows_, seq_;
  weft::Buffer host_ids_, ids_;  ///< of each pass inputs, then targets
  weft::Buffer host_lr_, lr_;
  weft::Buffer losses_, host_losses_;
  weft::Buffer host_overflow_;
};

}  // namespace train_gpt
