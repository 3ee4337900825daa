#pragma once

#include <array>
#include <cstddef>
#include <memory>

#include "collectives/envelope.hpp"
#include "collectives/ucx/ucx_backend.hpp"

namespace weft::ucx {

/// All memory that UCX uses for a message. If the message is given up half-way, this stays until UCX has finished.
struct UcxBackend::Leftover {
  Envelope envelope;
  std::unique_ptr<std::byte[]> body;  ///< the rest of the message; null where UCX uses the caller's memory
  Pending envelope_operation;
  Pending body_operation;

  [[nodiscard]] bool is_done() const noexcept { return envelope_operation.is_done() && body_operation.is_done(); }
  void abandon(Worker& worker) {
    std::array<Pending*, 2> const both{&envelope_operation, &body_operation};
    if (!is_done()) worker.abandon(both);
  }
};

}  // namespace weft::ucx
