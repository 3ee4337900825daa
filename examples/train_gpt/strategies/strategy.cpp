#include "strategies/strategy.hpp"

#include <utility>

namespace train_gpt {

std::unique_ptr<Strategy> make_strategy(weft::Communicator communicator, Options const& options, GptModel& model) {
  if (options.strategy == "zero3" || options.strategy == "hsdp") {
    return make_fully_sharded(std::move(communicator), options, model);
  }
  auto const make = !options.step_schedule.empty() ? make_scheduled
                    : options.strategy == "ddp"    ? make_replicated
                                                   : make_zero;
  return make(std::move(communicator), options, model,
              LocalTensors(model.parameters(), options.seed).take(options.parameter_type()));
}

}  // namespace train_gpt
