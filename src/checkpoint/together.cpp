#include "checkpoint/together.hpp"

#include <cstdint>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "weft/error.hpp"

namespace weft {
namespace {

std::string broadcast_from(Communicator& communicator, std::string text, int root, std::size_t bytes,
                           CollectiveOptions const& options) {
  text.resize(bytes);
  if (bytes != 0) communicator.broadcast(BufferView(text.data(), bytes, DataType::u8), root, options).wait();
  return text;
}

}  // namespace

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
  std::vector<std::uint64_t> mine{0, 0};  // 1 + the code of a failure, bytes of its words
  if (failure) mine = {1 + static_cast<std::uint64_t>(failure->code), failure->what.size()};
  std::vector<std::uint64_t> all(mine.size() * static_cast<std::size_t>(communicator.size()));
  communicator.all_gather(ConstBufferView(std::span(mine)), BufferView(std::span(all)), options).wait();
  for (std::size_t rank = 0; 2 * rank < all.size(); ++rank) {
    if (all[2 * rank] == 0) continue;
    std::string const what = broadcast_from(communicator, failure ? failure->what : std::string(),
                                            static_cast<int>(rank), all[2 * rank + 1], options);
    throw Error(static_cast<ErrorCode>(all[2 * rank] - 1), what);
  }
}

std::vector<std::string> gather_texts(Communicator& communicator, std::string const& mine,
                                      CollectiveOptions const& options) {
  auto const ranks = static_cast<std::size_t>(communicator.size());
  std::vector<std::uint64_t> const length{mine.size()};
  std::vector<std::uint64_t> lengths(ranks);
  communicator.all_gather(ConstBufferView(std::span(length)), BufferView(std::span(lengths)), options).wait();
  std::vector<std::size_t> const counts(lengths.begin(), lengths.end());
  std::size_t total = 0;
  for (std::size_t const count : counts) total += count;
  std::string all(total, '\0');
  communicator
      .all_gather(ConstBufferView(mine.data(), mine.size(), DataType::u8), BufferView(all.data(), total, DataType::u8),
                  Parts{counts}, options)
      .wait();
  std::vector<std::string> texts;
  std::size_t at = 0;
  for (std::size_t const count : counts) {
    texts.push_back(all.substr(at, count));
    at += count;
  }
  return texts;
}

std::string broadcast_text(Communicator& communicator, std::string text, CollectiveOptions const& options) {
  std::vector<std::uint64_t> length{text.size()};
  communicator.broadcast(BufferView(std::span(length)), 0, options).wait();
  return broadcast_from(communicator, std::move(text), 0, length[0], options);
}

}  // namespace weft
