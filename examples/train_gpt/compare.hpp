#pragma once

#include <optional>

#include <weft/communicator.hpp>

#include "data.hpp"
#include "gpt_model.hpp"
#include "options.hpp"

namespace train_gpt {

/// Trains from the same weights on the same batches with several ways to communicate, taking turns step by step so that
/// a noisy machine slows all alike, beside a baseline that only computes. Rank 0 prints one table. Collective.
void compare(weft::Communicator& world, Options const& options, GptModel& model, BatchSampler const& sampler,
             std::optional<weft::EmulatedLink> const& link);

}  // namespace train_gpt
