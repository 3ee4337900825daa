#pragma once

#include <weft/communicator.hpp>

#include "trainer.hpp"

namespace train_gpt {

/// Collective. Ranks that were started with different options, texts or checkpoints would train different models and
/// call them one. @throws weft::Error{mismatch} on every rank, naming what differs and between which ranks.
void check_same_everywhere(weft::Communicator& world, Inputs const& inputs);

}  // namespace train_gpt
