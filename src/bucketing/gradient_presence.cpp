#include "bucketing/gradient_presence.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace weft {

GradientPresence::GradientPresence(UnusedGradients mode, std::size_t tensors) : mode_(mode) {
  if (!matters()) return;
  here_.resize(tensors);
  anywhere_.resize(tensors);
}

void GradientPresence::begin(std::span<std::uint8_t const> here) {
  if (!matters() || learnt_) return;
  wait();  // the last step's may still be under way if nobody asked for it
  agreements_.clear();
  std::copy(here.begin(), here.end(), here_.begin());
  std::copy(here.begin(), here.end(), anywhere_.begin());
}

void GradientPresence::agree(Communicator& communicator, Stream const& stream) {
  if (!matters() || learnt_ || here_.empty()) return;
  std::span<std::uint8_t> const ranks(anywhere_);
  Stream const& on = host_.beside(stream, "which tensors have a gradient");
  agreements_.push_back(communicator.all_reduce(ranks, ranks, ReduceOp::max, {on, {}}));
}

bool GradientPresence::has_gradient(std::size_t tensor) const {
  if (!matters() || here_[tensor] != 0) return true;
  wait();
  return anywhere_[tensor] != 0;
}

bool GradientPresence::is_known() const noexcept {
  return std::all_of(agreements_.begin(), agreements_.end(), [](Work const& agreement) { return agreement.test(); });
}

void GradientPresence::wait() const {
  for (Work const& agreement : agreements_) agreement.wait();
}

void GradientPresence::drain() const noexcept {
  for (Work const& agreement : agreements_) {
    try {
      agreement.wait();
    } catch (...) {  // NOLINT(bugprone-empty-catch): whoever asked for the result has been told
    }
  }
}

std::vector<std::size_t> GradientPresence::learn() {
  std::vector<std::size_t> never;
  if (mode_ != UnusedGradients::fixed || learnt_) return never;
  learnt_ = true;
  for (std::size_t i = 0; i < here_.size(); ++i) {
    if (here_[i] == 0) never.push_back(i);
  }
  return never;
}

std::optional<std::size_t> GradientPresence::missing(std::span<std::uint8_t const> here) const {
  for (std::size_t i = 0; learnt_ && i < here_.size(); ++i) {
    if (here_[i] != 0 && here[i] == 0) return i;
  }
  return std::nullopt;
}

BrokenPromise::BrokenPromise(char const* call, std::size_t tensor)
    : Error(ErrorCode::invalid_argument,
            fmt::format("{}: tensor {} got no gradient, but it had one in the first step, and options.unused says that "
                        "it always has; it counted as zero. UnusedGradients::find allows changes",
                        call, tensor)) {}

}  // namespace weft
