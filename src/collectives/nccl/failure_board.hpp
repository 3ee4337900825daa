#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "collectives/shm/control_block.hpp"
#include "collectives/shm/segment.hpp"
#include "weft/bootstrap.hpp"
#include "weft/error.hpp"

namespace weft::nccl {

/// The first failure that any of several ranks of one host has recorded, in memory that all of them map. When one rank
/// stops NCCL, the other ranks' kernels end too, with incomplete results. So a rank records its failure here before it
/// stops NCCL, and a rank that finds an operation finished looks here afterwards. Copies share one board. Any thread.
class FailureBoard {
 public:
  /// Collective.
  static FailureBoard create(Bootstrap& bootstrap);

  /// At the beginning of zero-filled memory.
  explicit FailureBoard(std::shared_ptr<shm::Mapping> mapping) noexcept : mapping_(std::move(mapping)) {}

  /// Records a failure for all ranks; false if one was recorded before.
  bool fail(ErrorCode code, std::string const& message) noexcept;
  [[nodiscard]] std::optional<Error> failure() const;
  /// failure() as an exception to throw; null if there is none.
  [[nodiscard]] std::exception_ptr error() const;
  /// Whether failure() has a value.
  [[nodiscard]] bool has_failed() const noexcept {
    return record().state.load(std::memory_order_acquire) == static_cast<std::uint32_t>(shm::FailureState::set);
  }

 private:
  [[nodiscard]] shm::FailureRecord& record() const noexcept {
    return *reinterpret_cast<shm::FailureRecord*>(mapping_->data());
  }

  std::shared_ptr<shm::Mapping> mapping_;
};

}  // namespace weft::nccl
