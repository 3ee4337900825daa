#include "strategies/strategy.hpp"

#include <utility>

namespace train_gpt {

std::unique_ptr<Strategy> make_strategy(weft::Communicator communicator, Options const& options, GptModel& model,
                                        std::vector<weft::Buffer> start) {
  bool const fully = options.strategy == "zero3" || options.strategy == "hsdp";
  auto const make = options.strategy == "ddp" ? make_replicated : fully ? make_fully_sharded : make_zero;
  return make(std::move(communicator), options, model, std::move(start));
}

}  // namespace train_gpt
