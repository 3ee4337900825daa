#pragma once

#include <optional>
#include <string>

#include <weft/communicator.hpp>

#include "data.hpp"
#include "gpt_model.hpp"
#include "options.hpp"

namespace train_gpt {

/// Collective. What --link asks for. "auto" measures a few steps without communication and takes 20 µs and the
/// bandwidth with which all buckets together last half of the slowest rank's time; rank 0 computes it, the others are
/// told.
[[nodiscard]] std::optional<weft::EmulatedLink> choose_link(weft::Communicator& world, Options const& options,
                                                            GptModel& model, BatchSampler const& sampler);

/// A communicator of the same ranks over that link.
[[nodiscard]] weft::Communicator connect(weft::Communicator& world, std::optional<weft::EmulatedLink> const& link);

/// "none", or the link's own words, which say that it is emulated.
[[nodiscard]] std::string describe(std::optional<weft::EmulatedLink> const& link);
/// Collective. What moves the bytes of that link's communicator: those words, "shared memory", or "the network of 2
/// hosts".
[[nodiscard]] std::string describe_carrier(weft::Communicator& world, std::optional<weft::EmulatedLink> const& link);

}  // namespace train_gpt
