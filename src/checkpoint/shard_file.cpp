#include "checkpoint/shard_file.hpp"

#include <algorithm>

#include "checkpoint/index.hpp"
#include "checkpoint/xxh64.hpp"

namespace weft {
namespace {

/// Bytes that go to the disk in one go, while the next ones are checksummed.
constexpr std::uint64_t kDiskBytes = std::uint64_t{16} << 20U;

}  // namespace

std::vector<std::uint64_t> write_shard(std::filesystem::path const& path, SafetensorsHeader header,
                                       std::span<std::byte const> values) {
  std::string const start = encode_safetensors(path, header);
  File file = File::create(path);
  file.write(std::as_bytes(std::span(start)));
  std::uint64_t started = 0;
  std::uint64_t written = start.size();
  std::vector<std::uint64_t> checksums;
  for (StoredTensor const& tensor : header.tensors) {
    std::span<std::byte const> left = values.first(tensor.bytes());
    values = values.subspan(tensor.bytes());
    while (!left.empty()) {
      std::span<std::byte const> const block = left.first(std::min(left.size(), kBlockBytes));
      checksums.push_back(xxh64(block));
      file.write(block);
      left = left.subspan(block.size());
      written += block.size();
      if (written - started < kDiskBytes) continue;
      file.start_writing(started, written - started);
      started = written;
    }
  }
  file.sync();
  return checksums;
}

}  // namespace weft
