#include "collectives/nccl/failure_board.hpp"

#include <span>

#include "core/copy_text.hpp"

namespace weft::nccl {

FailureBoard FailureBoard::create(Bootstrap& bootstrap) {
  auto const bytes = sizeof(shm::FailureRecord);
  return FailureBoard(shm::create_segment(bootstrap.rank(), bootstrap.size(), bytes, 0,
                                          [&](std::span<std::byte const> mine) { return bootstrap.all_gather(mine); }));
}

bool FailureBoard::fail(ErrorCode code, std::string const& message) noexcept {
  auto& record = this->record();
  auto none = static_cast<std::uint32_t>(shm::FailureState::none);
  if (!record.state.compare_exchange_strong(none, static_cast<std::uint32_t>(shm::FailureState::writing))) return false;
  record.code = static_cast<std::uint32_t>(code);
  copy_text(message, record.message);
  record.state.store(static_cast<std::uint32_t>(shm::FailureState::set), std::memory_order_release);
  return true;
}

std::optional<Error> FailureBoard::failure() const {
  if (!has_failed()) return std::nullopt;
  auto const& record = this->record();
  return Error(static_cast<ErrorCode>(record.code), record.message);
}

std::exception_ptr FailureBoard::error() const {
  auto const decided = failure();
  return decided ? std::make_exception_ptr(*decided) : nullptr;
}

}  // namespace weft::nccl
