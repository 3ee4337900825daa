#include "collectives/hierarchical/wire_state.hpp"

namespace weft {

WireFeedback::WireFeedback() : state_(std::make_unique<State>()) {}
WireFeedback::~WireFeedback() = default;
WireFeedback::WireFeedback(WireFeedback&&) noexcept = default;
WireFeedback& WireFeedback::operator=(WireFeedback&&) noexcept = default;

void WireFeedback::forget() noexcept {
  *state_ = {};
}

}  // namespace weft
