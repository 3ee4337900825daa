#pragma once

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

namespace weft::test {

/// The files of a saved checkpoint, read and damaged by other code than Weft's.
class SaveFiles {
 public:
  explicit SaveFiles(std::string folder) : folder_(std::move(folder)) {}

  [[nodiscard]] std::string index() const { return folder_ + "/model.safetensors.index.json"; }

  [[nodiscard]] std::size_t entries() const {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder_), {}));
  }

  /// All safetensors files, sorted.
  [[nodiscard]] std::vector<std::string> shards() const {
    std::vector<std::string> found;
    for (auto const& entry : std::filesystem::recursive_directory_iterator(folder_)) {
      if (entry.path().extension() == ".safetensors") found.push_back(entry.path().string());
    }
    std::sort(found.begin(), found.end());
    return found;
  }

  /// The file that has `name`, and the offset of its first byte there.
  [[nodiscard]] std::pair<std::string, std::size_t> place_of(std::string const& name) const {
    for (std::string const& path : shards()) {
      std::string const bytes = read(path);
      std::uint64_t length = 0;
      std::memcpy(&length, bytes.data(), sizeof length);
      auto const header = nlohmann::json::parse(bytes.substr(8, length));
      if (header.contains(name)) return {path, 8 + length + header[name]["data_offsets"][0].get<std::size_t>()};
    }
    throw std::runtime_error("no file has " + name);
  }

  [[nodiscard]] static std::string read(std::string const& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  static void write(std::string const& path, std::string const& bytes) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  }
  static void flip(std::string const& path, std::size_t offset, unsigned char bits = 0x10) {
    std::string bytes = read(path);
    bytes.at(offset) = static_cast<char>(static_cast<unsigned char>(bytes.at(offset)) ^ bits);
    write(path, bytes);
  }

 private:
  std::string folder_;
};

}  // namespace weft::test
