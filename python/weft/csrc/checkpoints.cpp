#include "checkpoints.hpp"

#include "weft/training_checkpoint.hpp"

namespace weft::torch_backend {
namespace {

std::vector<NamedParameter> named(ShardedModel const& model, std::vector<std::string> const& names) {
  std::vector<NamedParameter> parameters;
  for (std::size_t i = 0; i < names.size(); ++i) {
    auto const sizes = model.layouts()[i].sizes();
    parameters.push_back({names[i], {sizes.begin(), sizes.end()}});
  }
  return parameters;
}

}  // namespace

Checkpoints::Checkpoints(ProcessGroupWeft& group, std::string const& folder)
    : communicator_(group.duplicate()), saver_(communicator_, folder) {}

void Checkpoints::save_sharded(ShardedModel& model, std::vector<std::string> const& names,
                               std::map<std::string, std::string> const& metadata) {
  as_torch(
      [&] { save(saver_, model.sharded(), named(model, names), {.step = 0, .optimizer = {}, .metadata = metadata}); });
}

void Checkpoints::wait() {
  as_torch([&] { saver_.wait(); });
}

std::map<std::string, std::string> load_sharded(ShardedModel& model, std::vector<std::string> const& names,
                                                std::string const& folder) {
  return as_torch([&] {
    auto const checkpoint = Checkpoint::open(model.communicator(), folder);
    load(checkpoint, model.communicator(), model.sharded(), named(model, names));
    return checkpoint.info().metadata;
  });
}

}  // namespace weft::torch_backend
