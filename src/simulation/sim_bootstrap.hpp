#pragma once

#include <cstring>
#include <vector>

#include "collectives/p2p/algorithms.hpp"
#include "transport/transport.hpp"
#include "weft/bootstrap.hpp"

namespace weft::sim {

/// The bootstrap of all ranks of a simulation. The transport, whose messages carry their bytes, outlives it.
class SimBootstrap final : public Bootstrap {
 public:
  explicit SimBootstrap(Transport& transport) noexcept : transport_(transport) {}

  [[nodiscard]] int rank() const noexcept override { return transport_.rank(); }
  [[nodiscard]] int size() const noexcept override { return transport_.size(); }
  [[nodiscard]] std::string name() const override { return "simulation"; }

  [[nodiscard]] std::vector<std::byte> all_gather(std::span<std::byte const> mine) override {
    std::vector<std::byte> all(mine.size() * static_cast<std::size_t>(size()));
    Call call;
    call.contract = {.count = mine.size(), .operation = Operation::all_gather, .dtype = DataType::u8};
    call.send = mine.data();
    call.recv = all.data();
    p2p::run(*p2p::find_algorithm(Operation::all_gather, "bruck"), transport_, call);
    return all;
  }

 private:
  Transport& transport_;
};

}  // namespace weft::sim
