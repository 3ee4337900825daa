#include "weft/trace.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <utility>

#include "core/describe_errno.hpp"
#include "runtime/trace_json.hpp"
#include "weft/error.hpp"

namespace weft {

namespace {

/// Every rank's bytes, in rank order. It takes two steps, because an all_gather moves equally much from every rank:
/// first the sizes, then the bytes, padded to the largest.
std::vector<std::vector<std::byte>> gather(Communicator& communicator, std::span<std::byte const> mine) {
  auto const ranks = static_cast<std::size_t>(communicator.size());
  std::uint64_t const size = mine.size();
  std::vector<std::uint64_t> sizes(ranks);
  communicator.all_gather(std::span(&size, 1), std::span(sizes)).wait();
  auto const largest = *std::max_element(sizes.begin(), sizes.end());

  std::vector<std::uint8_t> padded(largest);
  std::memcpy(padded.data(), mine.data(), mine.size());
  std::vector<std::uint8_t> all(largest * ranks);
  communicator.all_gather(std::span(std::as_const(padded)), std::span(all)).wait();

  std::vector<std::vector<std::byte>> result(ranks);
  auto const bytes = std::as_bytes(std::span(all));
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    auto const part = bytes.subspan(rank * largest, sizes[rank]);
    result[rank].assign(part.begin(), part.end());
  }
  return result;
}

void write_file(std::string const& path, std::string const& text) {
  errno = 0;
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text << '\n';
  file.close();
  if (file.fail()) {
    throw Error(ErrorCode::system, "Trace::write: cannot write '" + path + "': " + describe_errno(errno) +
                                       "; name a file in a directory you may write to");
  }
}

}  // namespace

void Trace::add(Lane lane, std::string name, Interval interval, std::size_t bytes) {
  spans_.push_back({lane, std::move(name), interval, bytes});
}

void Trace::write(Communicator& communicator, std::string const& path) const {
  auto const all = gather(communicator, encode_spans(spans_));
  if (communicator.rank() != 0) return;
  std::vector<std::vector<Span>> ranks;
  ranks.reserve(all.size());
  for (auto const& bytes : all) ranks.push_back(decode_spans(bytes));
  write_file(path, chrome_trace(ranks));
}

}  // namespace weft
