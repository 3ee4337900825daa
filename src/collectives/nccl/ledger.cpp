#include "collectives/nccl/ledger.hpp"

#include <fmt/format.h>

#include <string>

namespace weft::nccl {
namespace {

constexpr std::uint64_t pack(std::uint64_t number, Piece const& piece) noexcept {
  return number << 32U | static_cast<std::uint64_t>(piece.operation) << 8U | static_cast<std::uint64_t>(piece.dtype);
}

}  // namespace

std::uint64_t Ledger::publish(Side side, int peer, Piece const& piece) noexcept {
  auto& lines = of(side, rank_, peer);
  auto const number = lines.count.load(std::memory_order_relaxed) + 1;
  auto& entry = lines.entries[number % kRemembered];
  entry.what.store(0, std::memory_order_relaxed);
  entry.count.store(piece.count, std::memory_order_release);
  entry.what.store(pack(number, piece), std::memory_order_release);
  lines.count.store(number, std::memory_order_release);
  return number;
}

std::optional<Piece> Ledger::recall(Side side, int rank, int peer, std::uint64_t number) const noexcept {
  auto const& entry = of(side, rank, peer).entries[number % kRemembered];
  auto const what = entry.what.load(std::memory_order_acquire);
  Piece const piece{static_cast<Operation>(what >> 8U & 0xffU), static_cast<DataType>(what & 0xffU),
                    entry.count.load(std::memory_order_acquire)};
  bool const whole = entry.what.load(std::memory_order_relaxed) == what;
  if (!whole || what != pack(number & 0xffffffffU, piece)) return std::nullopt;
  return piece;
}

void publish(Ledger& ledger, Call const& call, int rank, int size) noexcept {
  using Side = Ledger::Side;
  auto const& contract = call.contract;
  auto const tell = [&](Side side, int peer, std::size_t bytes) {
    if (peer != rank) ledger.publish(side, peer, {contract.operation, contract.dtype, bytes / size_of(contract.dtype)});
  };
  auto const root = static_cast<int>(contract.root);
  auto const is_root = rank == root;
  switch (contract.operation) {
    case Operation::gather_v:
      if (!is_root) return tell(Side::given, root, call.own_bytes);
      for (int peer = 0; peer < size; ++peer) tell(Side::expected, peer, call.part(call.recv_parts, peer).length);
      return;
    case Operation::scatter_v:
      if (!is_root) return tell(Side::expected, root, call.own_bytes);
      for (int peer = 0; peer < size; ++peer) tell(Side::given, peer, call.part(call.send_parts, peer).length);
      return;
    case Operation::all_to_all_v:
      for (int peer = 0; peer < size; ++peer) {
        tell(Side::given, peer, call.part(call.send_parts, peer).length);
        tell(Side::expected, peer, call.part(call.recv_parts, peer).length);
      }
      return;
    default: return;
  }
}

void publish(Ledger& ledger, Message const& message, int rank) noexcept {
  if (message.peer == rank) return;
  auto const side = message.direction == Message::Direction::send ? Ledger::Side::given : Ledger::Side::expected;
  ledger.publish(side, message.peer, {Operation::send, message.dtype, message.bytes / size_of(message.dtype)});
}

std::string describe(Piece const& piece, Ledger::Side side) {
  auto const operation =
      side == Ledger::Side::expected && piece.operation == Operation::send ? Operation::receive : piece.operation;
  return fmt::format("{}({} × {})", to_string(operation), piece.count, to_string(piece.dtype));
}

}  // namespace weft::nccl
