#pragma once

#include <functional>

#include <weft/communicator.hpp>

#include "trainer.hpp"

namespace train_gpt {

/// Collective. Ranks that were started with different options, texts or checkpoints would train different models and
/// call them one. @throws weft::Error{mismatch} on every rank, naming what differs and between which ranks.
void check_same_everywhere(weft::Communicator& world, Inputs const& inputs);

/// Collective: runs `work` on every rank. Where it fails on rank 0, which writes the files, all ranks throw its words:
/// the others would blame rank 0 for having left. @throws std::runtime_error
void alike(weft::Communicator& world, std::function<void()> const& work);

}  // namespace train_gpt
