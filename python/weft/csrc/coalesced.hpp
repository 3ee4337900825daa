#pragma once

#include <functional>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "weft/group.hpp"
#include "weft/messenger.hpp"

namespace weft::torch_backend {

/// The calls between startCoalescing() and endCoalescing().
struct Coalesced {
  Coalesced(Communicator& communicator, CollectiveOptions const& options) : group(communicator, options) {}

  /// Null: torch has no use for a call's own Work while it coalesces.
  std::nullptr_t add(at::TensorList inputs, at::TensorList outputs, std::function<void()> land) {
    tensors.insert(tensors.end(), inputs.begin(), inputs.end());
    results.insert(results.end(), outputs.begin(), outputs.end());
    lands.push_back(std::move(land));
    return nullptr;
  }

  /// The same of messages, which are on their way already.
  std::nullptr_t add(at::TensorList of_message, Messenger::Request const& request) {
    results.insert(results.end(), of_message.begin(), of_message.end());
    messages.push_back(request);
    return nullptr;
  }

  Group group;
  std::vector<at::Tensor> tensors;
  std::vector<at::Tensor> results;
  std::vector<std::function<void()>> lands;
  std::vector<Messenger::Request> messages;
};

}  // namespace weft::torch_backend
