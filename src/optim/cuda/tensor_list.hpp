#pragma once

#include <span>
#include <vector>

#include "kernels/cuda/gradients/map.hpp"
#include "kernels/cuda/gradients/measure.hpp"
#include "optim/cuda/chunk_plan.hpp"
#include "optim/cuda/gpu.hpp"
#include "optim/cuda/gradient_table.hpp"

namespace weft::cuda {

/// Many tensors on one machine that kernels go through in one launch. The tables are uploaded once; later calls only
/// launch. The tensors must outlive it, or be replaced.
template <typename Machine>
class TensorList {
 public:
  /// `out` gets what is computed from `x` and `y`, tensor by tensor of equal counts; `y` may be empty.
  TensorList(Machine machine, std::span<BufferView const> x, std::span<BufferView const> y,
             std::span<BufferView const> out)
      : machine_(machine), x_(machine, x), y_(upload(machine, pointers(y))), out_(upload(machine, pointers(out))) {
    divide(x);
  }
  /// For tensors that change in place.
  TensorList(Machine machine, std::span<BufferView const> tensors) : machine_(machine), x_(machine, tensors) {
    divide(tensors);
  }

  /// For tensors that change in place: uses as many others from now on, of as many elements each.
  void replace(std::span<BufferView const> tensors, Stream const* stream) { x_.set(0, tensors, stream); }

  [[nodiscard]] Machine const& machine() const noexcept { return machine_; }

  template <typename Op>
  void map(Op const& op, float* found_inf, Stream const* stream) const {
    using kernels::cuda::TensorPointer;
    auto const* const out = out_.data() != nullptr ? static_cast<TensorPointer const*>(out_.data()) : x_.data();
    kernels::cuda::MapTable const table{x_.data(), static_cast<TensorPointer const*>(y_.data()), out, chunks()};
    machine_.launch(kernels::cuda::MapBody<Op>{table, op, found_inf}, chunk_count_, stream);
  }

 protected:
  [[nodiscard]] kernels::cuda::Chunk const* chunks() const {
    return static_cast<kernels::cuda::Chunk const*>(chunks_.data());
  }
  [[nodiscard]] kernels::cuda::TensorPointer const* tensors() const { return x_.data(); }
  [[nodiscard]] std::size_t chunk_count() const noexcept { return chunk_count_; }
  [[nodiscard]] std::vector<kernels::cuda::PartRange> const& ranges() const noexcept { return ranges_; }

 private:
  static std::vector<kernels::cuda::TensorPointer> pointers(std::span<BufferView const> views) {
    std::vector<kernels::cuda::TensorPointer> all;
    for (auto const& view : views) all.push_back({view.data, view.dtype});
    return all;
  }
  void divide(std::span<BufferView const> tensors) {
    std::vector<std::size_t> counts;
    for (auto const& view : tensors) counts.push_back(view.count);
    auto const plan = plan_chunks(counts);
    chunk_count_ = plan.chunks.size();
    chunks_ = upload(machine_, plan.chunks);
    for (auto const& range : plan.of_tensor) {
      ranges_.push_back({static_cast<std::uint32_t>(range.first), static_cast<std::uint32_t>(range.count)});
    }
  }

  Machine machine_;
  GradientTable<Machine> x_;
  Buffer y_, out_, chunks_;  // without `out_` tensors change in place
  std::size_t chunk_count_ = 0;
  std::vector<kernels::cuda::PartRange> ranges_;  // each tensor's chunks
};

/// A TensorList that can be measured.
template <typename Machine>
class MeasuredTensors : public TensorList<Machine> {
 public:
  MeasuredTensors(Machine machine, std::span<BufferView const> tensors)
      : TensorList<Machine>(machine, tensors),
        of_chunk_(machine.allocate(this->chunk_count() * sizeof(kernels::cuda::Measured))),
        of_tensor_(machine.allocate(tensors.size() * sizeof(kernels::cuda::Measured))),
        whole_(machine.allocate(sizeof(kernels::cuda::MeasuredList))),
        range_table_(upload(machine, this->ranges())) {}

  struct Options {
    kernels::cuda::Scalar factor{};
    bool largest = false;        ///< instead of l2
    double max_norm = 0;         ///< 0: no clipping
    float* found_inf = nullptr;  ///< may be null
  };
  /// Three launches.
  void measure(Options const& options, Stream const* stream) const {
    auto const& machine = this->machine();
    auto* const of_chunk = static_cast<kernels::cuda::Measured*>(of_chunk_.data());
    auto* const of_tensor = static_cast<kernels::cuda::Measured*>(of_tensor_.data());
    auto const count = this->ranges().size();
    machine.launch(kernels::cuda::MeasureChunksBody{this->tensors(), this->chunks(), options.factor, of_chunk},
                   this->chunk_count(), stream);
    machine.launch(
        kernels::cuda::MeasureRangesBody{of_chunk, static_cast<kernels::cuda::PartRange const*>(range_table_.data()),
                                         of_tensor},
        count, stream);
    machine.launch(kernels::cuda::MeasureListBody{of_tensor, static_cast<std::uint32_t>(count), options.largest,
                                                  options.max_norm, whole(), options.found_inf},
                   1, stream);
  }
  /// The result, in the machine's memory.
  [[nodiscard]] kernels::cuda::MeasuredList* whole() const {
    return static_cast<kernels::cuda::MeasuredList*>(whole_.data());
  }
  [[nodiscard]] kernels::cuda::Measured const* of_tensor() const {
    return static_cast<kernels::cuda::Measured const*>(of_tensor_.data());
  }

 private:
  Buffer of_chunk_, of_tensor_, whole_, range_table_;
};

}  // namespace weft::cuda
