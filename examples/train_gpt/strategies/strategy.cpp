#include "strategies/strategy.hpp"

#include <utility>

namespace train_gpt {

std::unique_ptr<Strategy> make_strategy(weft::Communicator communicator, Options const& options, GptModel& model,
                                        std::vector<weft::Buffer> start) {
  auto const make = options.strategy == "ddp" ? make_replicated : make_zero;
  return make(std::move(communicator), options, model, std::move(start));
}

}  // namespace train_gpt
