#include "checkpoint/index.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "checkpoint/json_text.hpp"
#include "checkpoint/optimizer_json.hpp"
#include "checkpoint/tensor_type.hpp"
#include "checkpoint/xxh64.hpp"
#include "weft/error.hpp"

namespace weft {
namespace {

using Json = nlohmann::json;

constexpr int kVersion = 1;
constexpr char const* kChecksum = "xxh64";

std::string hex(std::uint64_t value) {
  return fmt::format("{:016x}", value);
}

std::uint64_t checksum_of(std::string const& text) {
  return xxh64(std::as_bytes(std::span(text)));
}

Json part_to_json(IndexPart const& part) {
  Json checksums = Json::array();
  for (std::uint64_t const one : part.checksums) checksums.push_back(hex(one));
  return {{"file", part.file},
          {"name", part.stored_as},
          {"first", part.first},
          {"count", part.count},
          {kChecksum, std::move(checksums)}};
}

Json tensor_to_json(IndexTensor const& one) {
  Json parts = Json::array();
  for (IndexPart const& part : one.parts) parts.push_back(part_to_json(part));
  return {{"dtype", safetensors_name(one.tensor.dtype)}, {"shape", one.tensor.shape}, {"parts", std::move(parts)}};
}

/// Reads the text of one index.
class Parser {
 public:
  explicit Parser(std::filesystem::path const& path) : path_(path) {}

  [[nodiscard]] CheckpointIndex parse(Json const& json) const {
    if (json.at("version") != kVersion)
      bad(fmt::format("is of version {}, not {}", json.at("version").dump(), kVersion));
    if (json.at("block_bytes") != kBlockBytes) bad("has checksums of another block size");
    CheckpointIndex index;
    index.save = json.at("save").get<std::string>();
    index.info.step = json.at("step").get<std::int64_t>();
    index.info.metadata = json.at("metadata").get<std::map<std::string, std::string>>();
    for (Json const& group : json.at("optimizer")) index.info.optimizer.push_back(optimizer_from_json(path_, group));
    for (Json const& file : json.at("files")) index.files.push_back(file_name(file.get<std::string>()));
    for (auto const& [name, tensor] : json.at("tensors").items()) {
      index.tensors.push_back(parse_tensor(name, tensor, index.files.size()));
    }
    return index;
  }

 private:
  [[noreturn]] void bad(std::string const& what) const { refuse(path_, what); }

  /// Refuses files outside of the checkpoint's folder.
  [[nodiscard]] std::string file_name(std::string name) const {
    std::filesystem::path const path(name);
    bool const leaves = path.is_absolute() || std::find(path.begin(), path.end(), "..") != path.end();
    if (name.empty() || leaves) bad(fmt::format("names the file \"{}\"", name));
    return name;
  }

  [[nodiscard]] std::uint64_t parse_hex(std::string const& text) const {
    std::uint64_t value = 0;
    auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
    if (error != std::errc() || end != text.data() + text.size()) bad(fmt::format("{} is no checksum", text));
    return value;
  }

  [[nodiscard]] IndexTensor parse_tensor(std::string const& name, Json const& json, std::size_t files) const {
    IndexTensor one;
    auto const type = json.at("dtype").get<std::string>();
    auto const known = parse_safetensors_name(type);
    if (!known) bad(fmt::format("tensor {}: has the unknown type {}", name, type));
    one.tensor = {name, json.at("shape").get<std::vector<std::size_t>>(), 0, *known};
    auto const count = count_of(one.tensor.shape, size_of(*known));
    if (!count) bad(fmt::format("tensor {}: its shape is {}", name, json.at("shape").dump()));
    one.tensor.count = *count;
    for (Json const& part : json.at("parts")) {
      one.parts.push_back({part.at("file").get<std::size_t>(),
                           part.at("name").get<std::string>(),
                           part.at("first").get<std::size_t>(),
                           part.at("count").get<std::size_t>(),
                           {}});
      for (Json const& checksum : part.at(kChecksum)) {
        one.parts.back().checksums.push_back(parse_hex(checksum.get<std::string>()));
      }
      if (one.parts.back().file >= files)
        bad(fmt::format("tensor {}: lies in file {} of {}", name, one.parts.back().file, files));
    }
    std::string const wrong = sort_and_check(one);
    if (!wrong.empty()) bad(fmt::format("tensor {}: {}", name, wrong));
    for (IndexPart const& part : one.parts) {
      if (part.checksums.size() != block_count(part.count * size_of(*known))) {
        bad(fmt::format("tensor {}: has {} checksums for its part from element {} on", name, part.checksums.size(),
                        part.first));
      }
    }
    return one;
  }

  std::filesystem::path const& path_;
};

}  // namespace

std::string part_name(Checkpoint::Tensor const& tensor, std::size_t first, std::size_t count) {
  if (first == 0 && count == tensor.count) return tensor.name;
  return fmt::format("{}[{}:{}]", tensor.name, first, first + count);
}

std::string sort_and_check(IndexTensor& tensor) {
  std::sort(tensor.parts.begin(), tensor.parts.end(), [](IndexPart const& a, IndexPart const& b) {
    return std::pair(a.first, a.count) < std::pair(b.first, b.count);
  });
  std::size_t end = 0;
  for (IndexPart const& part : tensor.parts) {
    if (part.first > tensor.tensor.count || part.count > tensor.tensor.count - part.first) {
      return fmt::format("a part from element {} on has {} elements, the tensor {}", part.first, part.count,
                         tensor.tensor.count);
    }
    if (part.first < end) return fmt::format("element {} is there twice", part.first);
    if (part.first > end) return fmt::format("elements [{}, {}) are missing", end, part.first);
    end += part.count;
  }
  if (end != tensor.tensor.count) return fmt::format("elements [{}, {}) are missing", end, tensor.tensor.count);
  return {};
}

std::string to_json(CheckpointIndex const& index) try {
  std::uint64_t total = 0;
  Json weights = Json::object();
  Json tensors = Json::object();
  for (IndexTensor const& one : index.tensors) {
    total += one.tensor.count * size_of(one.tensor.dtype);
    for (IndexPart const& part : one.parts) weights[part.stored_as] = index.files[part.file];
    tensors[one.tensor.name] = tensor_to_json(one);
  }
  Json optimizer = Json::array();
  for (OptimizerOptions const& group : index.info.optimizer) optimizer.push_back(optimizer_to_json(group));
  Json json{{"metadata", {{"total_size", total}}},
            {"weight_map", std::move(weights)},
            {"weft",
             {{"version", kVersion},
              {"save", index.save},
              {"step", index.info.step},
              {"optimizer", std::move(optimizer)},
              {"metadata", index.info.metadata},
              {"block_bytes", kBlockBytes},
              {"files", index.files},
              {"tensors", std::move(tensors)}}}};
  std::string const checksum = hex(checksum_of(json.dump()));
  json[kChecksum] = checksum;
  return json.dump(1) + "\n";
} catch (Json::exception const&) {
  throw Error(ErrorCode::invalid_argument,
              "CheckpointSaver::save: names and values of info.metadata must be UTF-8; encode what is not");
}

CheckpointIndex parse_index(std::filesystem::path const& path, std::string const& text) {
  Json json = parse_json(path, text);
  try {
    if (!json.is_object() || !json.contains("weft")) refuse(path, "was not written by Weft");
    std::string const expected = json.at(kChecksum).get<std::string>();
    json.erase(kChecksum);
    if (hex(checksum_of(json.dump())) != expected)
      refuse(path, "checksum differs; the file is damaged: restore it from a copy, or take another checkpoint");
    return Parser(path).parse(json.at("weft"));
  } catch (Json::exception const& broken) {
    refuse_contents(path, broken);
  }
}

}  // namespace weft
