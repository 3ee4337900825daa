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

/// Which tensors have a gradient in a step: on this rank, and on any. In a step: begin(), agree(), has_gradient() of
/// each, perhaps learn(). Under UnusedGradients::zero all have, and nothing is sent. Not thread-safe.
class GradientPresence {
 public:
  GradientPresence(UnusedGradients mode, std::size_t tensors);

  /// Something depends on who has what.
  [[nodiscard]] bool matters() const noexcept { return mode_ != UnusedGradients::zero; }
  /// By tensor: not 0 where this rank has a gradient in the step that ends.
  void begin(std::span<std::uint8_t const> here);
  /// Collective, asynchronous: finds out what ranks have, unless it is known. Of several communicators in turn: all
  /// ranks that these connect. Through host memory, see HostStream. @throws what that does.
  void agree(Communicator& communicator, Stream const& stream);
  /// Some rank has, or had in the last step. Blocks until agree() has found out, unless this rank has one itself.
  [[nodiscard]] bool has_gradient(std::size_t tensor) const;
  /// Blocks until nothing of this is under way. drain() whatever failed.
  void wait() const;
  void drain() const noexcept;

  /// What this step found holds from now on, if the mode says so: returns the tensors that this rank never has.
  std::vector<std::size_t> learn();
  /// It was learnt that this rank never has a gradient of `tensor`, that some rank always has.
  [[nodiscard]] bool never_here(std::size_t tensor) const noexcept { return learnt_ && here_[tensor] == 0; }
  [[nodiscard]] bool always_anywhere(std::size_t tensor) const noexcept { return learnt_ && anywhere_[tensor] != 0; }
  /// The first tensor that has no gradient in this step against what was learnt.
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
  /// What `call` throws.
  BrokenPromise(char const* call, std::size_t tensor);
};

}  // namespace weft
