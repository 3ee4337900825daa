#include <algorithm>

#include "weft/checkpoint.hpp"
#include "weft/error.hpp"

namespace weft {
namespace {

constexpr std::size_t kSmallest = std::size_t{1} << 20;  ///< bytes of the smallest tensor that is cut
constexpr std::size_t kUnit = 64;                        ///< elements that stay together

// How many of a tensor's elements lie before `cut`. `begin` and `cut` count bytes from the start of all tensors.
std::size_t elements_before(ConstBufferView const& tensor, std::size_t begin, std::size_t cut) {
  if (cut <= begin) return 0;
  if (tensor.bytes() < kSmallest || cut >= begin + tensor.bytes()) return tensor.count;
  return std::min(tensor.count, (cut - begin) / size_of(tensor.dtype) / kUnit * kUnit);
}

}  // namespace

std::vector<CheckpointTensor> share_of(std::span<CheckpointTensor const> whole, int rank, int ranks) {
  if (rank < 0 || rank >= ranks) throw Error(ErrorCode::invalid_argument, "share_of: there is no such rank");
  std::size_t const total = checkpoint_copy_bytes(whole);
  auto const n = static_cast<std::size_t>(ranks);
  auto const cut_before = [&](std::size_t r) { return total / n * r + total % n * r / n; };
  auto const r = static_cast<std::size_t>(rank);
  std::vector<CheckpointTensor> mine;
  std::size_t begin = 0;
  for (CheckpointTensor const& one : whole) {
    ConstBufferView const& values = one.values;
    // Rank 0 begins before everything, also before tensors without elements.
    std::size_t const first = rank == 0 ? 0 : elements_before(values, begin, cut_before(r));
    std::size_t const last = rank == ranks - 1 ? values.count : elements_before(values, begin, cut_before(r + 1));
    begin += values.bytes();
    if (first == last && !(values.count == 0 && rank == 0)) continue;
    CheckpointTensor part = one;
    part.first = one.first + first;
    auto const* const data = static_cast<std::byte const*>(values.data);
    part.values = {data == nullptr ? nullptr : data + first * size_of(values.dtype), last - first, values.dtype,
                   values.device};
    mine.push_back(std::move(part));
  }
  return mine;
}

std::size_t checkpoint_copy_bytes(std::span<CheckpointTensor const> tensors) {
  std::size_t bytes = 0;
  for (CheckpointTensor const& one : tensors) bytes += one.values.bytes();
  return bytes;
}

}  // namespace weft
