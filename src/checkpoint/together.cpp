#include "checkpoint/together.hpp"

#include <algorithm>
#include <cstdint>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "collectives/texts.hpp"
#include "weft/error.hpp"

namespace weft {
std::optional<Failure> failure_of(std::function<void()> const& local) {
  try {
    local();
    return std::nullopt;
  } catch (Error const& error) {
    return Failure{error.code(), error.what()};
  } catch (std::bad_alloc const&) {
    return Failure{ErrorCode::out_of_memory, "checkpoint: memory is exhausted"};
  } catch (std::exception const& error) {
    return Failure{ErrorCode::system, error.what()};
  }
}

void together(Communicator& communicator, std::function<void()> const& local, CollectiveOptions const& options) {
  std::optional<Failure> const failure = failure_of(local);
  std::vector<std::uint64_t> const mine{failure ? 1 + static_cast<std::uint64_t>(failure->code) : 0};
  std::vector<std::uint64_t> all(static_cast<std::size_t>(communicator.size()));
  communicator.all_gather(ConstBufferView(std::span(mine)), BufferView(std::span(all)), options).wait();
  auto const first = std::find_if(all.begin(), all.end(), [](std::uint64_t code) { return code != 0; });
  if (first == all.end()) return;
  auto const rank = static_cast<int>(first - all.begin());
  throw Error(static_cast<ErrorCode>(*first - 1),
              broadcast_text(communicator, failure ? failure->what : std::string(), rank, options));
}

}  // namespace weft
