#pragma once

#include <map>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "process_group.hpp"
#include "sharded_model.hpp"
#include "weft/checkpoint.hpp"

namespace weft::torch_backend {

/// A weft::CheckpointSaver with its own communicator. Every member is collective; not thread-safe.
class Checkpoints {
 public:
  Checkpoints(ProcessGroupWeft& group, std::string const& folder);

  /// `names` are those of the parameters, in the model's order. Returns as soon as everything has been copied.
  void save_sharded(ShardedModel& model, std::vector<std::string> const& names,
                    std::map<std::string, std::string> const& metadata);
  void wait();

 private:
  Communicator communicator_;
  CheckpointSaver saver_;
};

/// Collective: loads parameters, their float32 originals, states and step count; returns the metadata.
[[nodiscard]] std::map<std::string, std::string> load_sharded(ShardedModel& model,
                                                              std::vector<std::string> const& names,
                                                              std::string const& folder);

}  // namespace weft::torch_backend
