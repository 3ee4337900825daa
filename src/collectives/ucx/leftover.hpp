#pragma once

#include <array>
#include <cstddef>
#include <memory>

#include "collectives/envelope.hpp"
#include "collectives/ucx/ucx_backend.hpp"

namespace weft::ucx {

/// All that UCX uses of a message: where one is given up half-way, it stays until UCX is through with it.
struct UcxBackend::Leftover {
  Envelope envelope;
  std::unique_ptr<std::byte[]> body;  ///< where it is not the caller's memory
  Pending envelope_operation;
  Pending body_operation;

  [[nodiscard]] bool is_done() const noexcept { return envelope_operation.is_done() && body_operation.is_done(); }
  void abandon(Worker& worker) {
    std::array<Pending*, 2> const both{&envelope_operation, &body_operation};
    if (!is_done()) worker.abandon(both);
  }
};

}  // namespace weft::ucx
