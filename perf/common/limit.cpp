#include "common/limit.hpp"

#include <algorithm>
#include <chrono>
#include <limits>

#include "common/pattern.hpp"

namespace weft::perf {
namespace {

using Clock = std::chrono::steady_clock;

std::size_t line_floats(std::size_t bytes) {
  return (bytes + 63) / 64 * 16;
}

}  // namespace

PhysicalLimit::PhysicalLimit(Meeting const& meeting, Board& board, Case const& what, std::size_t max_bytes)
    : board_(board),
      case_(what),
      arena_(meeting, 2 * static_cast<std::size_t>(board.ranks()) * (line_floats(max_bytes) + 16) * sizeof(float)),
      exchange_(flag_exchange(board)) {
  auto* next = reinterpret_cast<float*>(arena_.data());
  auto const room = line_floats(max_bytes) + 16;
  for (int rank = 0; rank < board.ranks(); ++rank) {
    sends_.push_back(next);
    recvs_.push_back(next + room);
    next += 2 * room;
  }
}

double PhysicalLimit::measure(std::size_t elements, int root, int iterations, bool streaming) {
  auto const rank = static_cast<std::size_t>(board_.rank());
  Place const place{board_.rank(), board_.ranks(), root};
  Pattern const pattern(DataType::f32, board_.rank());
  auto const on = case_.operands({sends_[rank], elements, DataType::f32}, {recvs_[rank], elements, DataType::f32},
                                 case_.counts(elements, board_.ranks()), place, false);
  double best = std::numeric_limits<double>::max();
  for (int i = 0; i < iterations; ++i) {
    pattern.write(on.send, static_cast<std::uint64_t>(i));
    board_.barrier();
    auto const start = Clock::now();
    case_.touch(sends_, recvs_, elements, place, streaming);
    std::chrono::duration<double> const took = Clock::now() - start;
    best = std::min(best, board_.max(took.count()));
    read_all(on.recv);
  }
  return best;
}

double PhysicalLimit::seconds(std::size_t bytes, int root) {
  auto const elements = line_floats(bytes);
  int const iterations = bytes > (8U << 20) ? 3 : 20;
  static_cast<void>(measure(elements, root, 1, false));  // page faults
  auto const least = std::min(measure(elements, root, iterations, false), measure(elements, root, iterations, true));
  return std::max(exchange_, least);
}

double flag_exchange(Board& board) {
  double best = std::numeric_limits<double>::max();
  int const exchanges = board.crowded() ? 200 : 2000;
  for (int repeat = 0; repeat < 5; ++repeat) {
    board.barrier();
    auto const start = Clock::now();
    for (int i = 0; i < exchanges; ++i) board.barrier();
    std::chrono::duration<double> const took = Clock::now() - start;
    best = std::min(best, board.max(took.count() / exchanges));
  }
  return best;
}

}  // namespace weft::perf
