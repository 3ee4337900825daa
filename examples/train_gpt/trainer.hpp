#pragma once

#include <optional>

#include <weft/communicator.hpp>
#include <weft/memory.hpp>

#include "checkpoint.hpp"
#include "data.hpp"
#include "options.hpp"

namespace train_gpt {

/// What every rank starts from; read before the ranks exist.
struct Inputs {
  Options options;
  Text text;
  std::uint64_t text_fingerprint = 0;
  std::optional<Checkpoint> checkpoint;
  bool is_folder = false;  ///< its values are in options.resume
};

/// One rank's whole run; rank 0 prints. `memory` is bound to this thread. Collective.
void run_rank(weft::Communicator& world, Inputs const& inputs, weft::MemoryAccount const& memory);

/// Mean of a figure over the ranks. Collective.
[[nodiscard]] float mean_over_ranks(weft::Communicator& world, float value);

}  // namespace train_gpt
