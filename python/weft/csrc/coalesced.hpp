#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "device.hpp"
#include "weft/group.hpp"
#include "weft/messenger.hpp"

namespace weft::torch_backend {

/// The calls between startCoalescing() and endCoalescing().
struct Coalesced {
  /// The first call opens the group, because only then is it known whether the calls are on a GPU.
  void open(Communicator& communicator, CollectiveOptions const& options, std::shared_ptr<GpuStreams> on) {
    if (group) return;
    group.emplace(communicator, options);
    gpu = std::move(on);
  }

  /// Adds a call. `land`, if not empty, puts the call's results in place. Returns null, because torch does not use a
  /// call's own Work while it coalesces.
  std::nullptr_t add(at::TensorList inputs, at::TensorList outputs, std::function<void()> land) {
    tensors.insert(tensors.end(), inputs.begin(), inputs.end());
    results.insert(results.end(), outputs.begin(), outputs.end());
    if (land) lands.push_back(std::move(land));
    return nullptr;
  }

  /// The same for messages, which have been started already.
  std::nullptr_t add(at::TensorList of_message, Messenger::Request const& request) {
    results.insert(results.end(), of_message.begin(), of_message.end());
    messages.push_back(request);
    return nullptr;
  }

  std::optional<Group> group;
  std::shared_ptr<GpuStreams> gpu;  ///< null for calls on the CPU
  std::vector<at::Tensor> tensors;
  std::vector<at::Tensor> results;
  std::vector<std::function<void()>> lands;
  std::vector<Messenger::Request> messages;
};

}  // namespace weft::torch_backend
