#pragma once

#include <span>
#include <string>
#include <vector>

#include "weft/checkpoint.hpp"
#include "weft/gradient_compression.hpp"
#include "weft/optimizer.hpp"
#include "weft/sharded_optimizer.hpp"

namespace weft {

/// What a checkpoint calls a parameter.
struct NamedParameter {
  std::string name;
  std::vector<std::size_t> shape;
};

struct LoadOptions {
  /// Tensors of the checkpoint that nobody asks for, as of a bigger model, are left out; else they are refused.
  bool partial = false;
};

// Parameters and optimizer states of any strategy, into and out of a checkpoint of any. Of the parameter "w" a
// checkpoint has, in f32:
//
//   "w"                    its values; of a 16-bit parameter with an f32 original that
//   "optimizer.w.exp_avg"  and each other of its optimizer's states, by torch's name
//
// The strategy, the type of the parameters and the number of ranks may be others at the load than at the save; only the
// optimizers must be alike. A run continues with equal bits if all of these are the same (8-bit states: if they are
// also divided alike).
//
// `parameters` names all of the strategy's, in its order. save() fills in `info.step`, the number of applied steps, and
// `info.optimizer`; load() puts the step count back. Learning rates, loss scales and, where steps may be skipped, which
// batch comes next are the caller's, who has info.metadata for them.
//
// `compressor`: what gradients are compressed by, if its residuals (see CompressionOptions::error_feedback) are to be
// saved and loaded too: 4 bytes a parameter and rank, "compression.w.residual" of w's shape for each rank. At the same
// number of ranks each gets its own back, and the run continues with equal bits. At another number each gets the mean
// of the saved ones: what the run still owes the parameters is kept, bits are not. Of a checkpoint without, and where
// `compressor` is null, nothing is owed.
//
// All are collective. @throws Error{invalid_argument}, on every rank and before anything is written or changed,
// - naming the parameter and both counts or shapes where `parameters` does not fit, or both optimizers where they are
//   not alike;
// - of a save, naming the parameter or state and the first element that is not finite: a diverged run does not replace
//   its last good checkpoint. Nor does one whose ranks went different ways: what ShardedOptimizer::check_step() throws;
// - of a load, naming the folder and a tensor that the checkpoint has not, or one there that is none of `parameters` or
//   their states (residuals may be there or not), unless options.partial;
// and what CheckpointSaver::save() and Checkpoint::read() throw.

void save(CheckpointSaver& saver, ShardedOptimizer& sharded, std::span<NamedParameter const> parameters,
          CheckpointInfo info = {}, GradientCompressor const* compressor = nullptr);
/// Of replicas: each rank of `communicator`, the saver's, writes a share. Optimizers are to be equal on all of them:
/// those of ranks that had fewer steps in a DataParallel::join() without `shadowed` are behind.
void save(CheckpointSaver& saver, Communicator const& communicator, Optimizer& optimizer,
          std::span<NamedParameter const> parameters, CheckpointInfo info = {},
          GradientCompressor const* compressor = nullptr);

/// A ZeroOptimizer is as constructed, with options.buckets.rebuild = false; of a FullySharded no unit is in use.
void load(Checkpoint const& checkpoint, Communicator& communicator, ShardedOptimizer& sharded,
          std::span<NamedParameter const> parameters, GradientCompressor* compressor = nullptr,
          LoadOptions const& options = {});
/// Writes parameters, their f32 originals and states, on every rank.
void load(Checkpoint const& checkpoint, Communicator& communicator, Optimizer& optimizer,
          std::span<NamedParameter const> parameters, GradientCompressor* compressor = nullptr,
          LoadOptions const& options = {});

}  // namespace weft
