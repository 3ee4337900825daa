#include "collectives/texts.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace weft {

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

std::string broadcast_text(Communicator& communicator, std::string text, int root, CollectiveOptions const& options) {
  std::vector<std::uint64_t> length{text.size()};
  communicator.broadcast(BufferView(std::span(length)), root, options).wait();
  text.resize(length[0]);
  if (!text.empty()) {
    communicator.broadcast(BufferView(text.data(), text.size(), DataType::u8), root, options).wait();
  }
  return text;
}

}  // namespace weft
