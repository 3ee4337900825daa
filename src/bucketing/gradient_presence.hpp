#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "bucketing/host_stream.hpp"
#include "weft/bucketer.hpp"
#include "weft/communicator.hpp"
#include "weft/error.hpp"

namespace weft {

/// Knows which tensors have a gradient in a step: on this rank, and on any rank. Calls in a step: begin(), agree(),
/// has_gradient() of each, perhaps learn(). Under UnusedGradients::zero all tensors have one, and nothing is sent. Not
/// thread-safe.
class GradientPresence {
 public:
  GradientPresence(UnusedGradients mode, std::size_t tensors);

  /// Whether anything depends on who has which gradients.
  [[nodiscard]] bool matters() const noexcept { return mode_ != UnusedGradients::zero; }
  /// `here` by tensor: not 0 where this rank has a gradient in the step that ends.
  void begin(std::span<std::uint8_t const> here);
  /// Collective, asynchronous: finds out what other ranks have, unless it is known. Called for several communicators in
  /// turn it covers all ranks that they connect. Through host memory, see HostStream, and @throws what that does.
  void agree(Communicator& communicator, Stream const& stream);
  /// Whether some rank has a gradient, in this step or, before begin(), in the last one. Blocks until agree() has found
  /// out, unless this rank has one itself.
  [[nodiscard]] bool has_gradient(std::size_t tensor) const;
  /// Whether has_gradient() of any tensor would return at once.
  [[nodiscard]] bool is_known() const noexcept;
  /// Block until nothing of this is under way; drain() also where something failed.
  void wait() const;
  void drain() const noexcept;

  /// Keeps what this step found for all later steps, if the mode says so; returns the tensors that this rank never has
  /// a gradient of.
  std::vector<std::size_t> learn();
  /// What was learnt: that this rank never has a gradient of `tensor`; that some rank always has one.
  [[nodiscard]] bool never_here(std::size_t tensor) const noexcept { return learnt_ && here_[tensor] == 0; }
  [[nodiscard]] bool always_anywhere(std::size_t tensor) const noexcept { return learnt_ && anywhere_[tensor] != 0; }
  /// The first tensor that by what was learnt always has a gradient here, but has none in this step.
  [[nodiscard]] std::optional<std::size_t> missing(std::span<std::uint8_t const> here) const;

 private:
  UnusedGradients mode_;
  bool learnt_ = false;
  std::vector<std::uint8_t> here_;
  std::vector<std::uint8_t> anywhere_;
  std::vector<Work> agreements_;
  HostStream host_;
};

/// A rank broke the promise of UnusedGradients::fixed. The step has ended all the same, and the next may follow.
class BrokenPromise : public Error {
 public:
  /// The error that `call` throws.
  BrokenPromise(char const* call, std::size_t tensor);
};

}  // namespace weft
