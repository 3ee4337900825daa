#include "checkpoint/safetensors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "checkpoint/json_text.hpp"
#include "checkpoint/tensor_type.hpp"

namespace weft {
namespace {

using Json = nlohmann::json;

static_assert(std::endian::native == std::endian::little, "lengths and values are written as they lie");

constexpr std::size_t kLengthBytes = sizeof(std::uint64_t);
constexpr std::uint64_t kLongestHeader = 100'000'000;  // the reference implementation's limit
constexpr char const* kMetadata = "__metadata__";

StoredTensor parse_tensor(std::filesystem::path const& path, std::string const& name, Json const& json,
                          std::uint64_t values_at, std::uint64_t values) {
  auto const bad = [&](std::string const& why) { refuse(path, fmt::format("tensor {}: {}", name, why)); };
  StoredTensor tensor{.name = name, .shape = {}};
  try {
    auto const type = json.at("dtype").get<std::string>();
    auto const known = parse_safetensors_name(type);
    if (!known) bad(fmt::format("has the unknown type {}", type));
    tensor.dtype = *known;
    for (Json const& extent : json.at("shape")) {
      if (!extent.is_number_unsigned()) bad(fmt::format("its shape is {}", json.at("shape").dump()));
      tensor.shape.push_back(extent.get<std::size_t>());
    }
    Json const& offsets = json.at("data_offsets");
    if (!offsets.is_array() || offsets.size() != 2 || !offsets[0].is_number_unsigned() ||
        !offsets[1].is_number_unsigned()) {
      bad(fmt::format("its data_offsets are {}", offsets.dump()));
    }
    auto const begin = offsets[0].get<std::uint64_t>();
    auto const end = offsets[1].get<std::uint64_t>();
    if (begin > end || end > values) {
      bad(fmt::format("its values lie at [{}, {}), the file has {} bytes of them", begin, end, values));
    }
    auto const count = count_of(tensor.shape, size_of(tensor.dtype));
    if (!count || *count * size_of(tensor.dtype) != end - begin) {
      bad(fmt::format("has {} bytes, which are not those of shape {} and type {}", end - begin, json.at("shape").dump(),
                      type));
    }
    tensor.count = *count;
    tensor.offset = values_at + begin;
  } catch (Json::exception const& broken) {
    refuse_contents(path, broken, fmt::format("tensor {}: its description ", name));
  }
  return tensor;
}

void check_no_gaps(std::filesystem::path const& path, std::vector<StoredTensor> const& tensors, std::uint64_t begin,
                   std::uint64_t end) {
  for (StoredTensor const& tensor : tensors) {
    if (tensor.offset != begin) {
      refuse(path, fmt::format("tensor {}: begins at byte {} of the file, the one before ends at {}", tensor.name,
                               tensor.offset, begin));
    }
    begin += tensor.bytes();
  }
  if (begin != end) refuse(path, fmt::format("has {} bytes behind its last tensor", end - begin));
}

void parse_metadata(std::filesystem::path const& path, Json const& json, SafetensorsHeader& header) {
  if (!json.is_object()) refuse(path, "its __metadata__ is no object");
  for (auto const& [name, value] : json.items()) {
    if (!value.is_string()) refuse(path, fmt::format("its __metadata__ has a {} that is no string", name));
    header.metadata.emplace(name, value.get<std::string>());
  }
}

}  // namespace

std::string encode_safetensors(std::filesystem::path const& path, SafetensorsHeader& header) {
  Json json = Json::object();
  if (!header.metadata.empty()) json[kMetadata] = header.metadata;
  std::uint64_t end = 0;
  for (StoredTensor& tensor : header.tensors) {
    tensor.offset = end;
    end += tensor.bytes();
    json[tensor.name] = {
        {"dtype", safetensors_name(tensor.dtype)}, {"shape", tensor.shape}, {"data_offsets", {tensor.offset, end}}};
  }
  std::string text = json.dump();
  text.resize((text.size() + kLengthBytes - 1) / kLengthBytes * kLengthBytes, ' ');
  if (text.size() > kLongestHeader) {
    refuse(path, fmt::format("its header would have {} bytes for {} tensors, readers take {} at most; save from more "
                             "ranks, or tensors of fewer pieces and with shorter names",
                             text.size(), header.tensors.size(), kLongestHeader));
  }
  for (StoredTensor& tensor : header.tensors) tensor.offset += kLengthBytes + text.size();
  std::uint64_t const length = text.size();
  std::string encoded(kLengthBytes, '\0');
  std::memcpy(encoded.data(), &length, sizeof length);
  return encoded + text;
}

SafetensorsHeader read_safetensors(File const& file) {
  std::filesystem::path const& path = file.path();
  std::uint64_t const size = file.size();
  std::uint64_t length = 0;
  if (size < kLengthBytes) refuse(path, fmt::format("has {} bytes; no safetensors file is as short", size));
  file.read(0, std::as_writable_bytes(std::span(&length, 1)));
  if (length > kLongestHeader || length > size - kLengthBytes) {
    refuse(path, fmt::format("its header of {} bytes does not fit into its {}; it was cut short, or is no safetensors "
                             "file",
                             length, size));
  }
  std::string text(length, '\0');
  file.read(kLengthBytes, std::as_writable_bytes(std::span(text)));
  Json const json = parse_json(path, text);
  if (!json.is_object()) refuse(path, "its header is no JSON object");

  SafetensorsHeader header;
  std::uint64_t const values_at = kLengthBytes + length;
  for (auto const& [name, value] : json.items()) {
    if (name == kMetadata) {
      parse_metadata(path, value, header);
    } else {
      header.tensors.push_back(parse_tensor(path, name, value, values_at, size - values_at));
    }
  }
  std::sort(header.tensors.begin(), header.tensors.end(), [](StoredTensor const& a, StoredTensor const& b) {
    return std::pair(a.offset, a.bytes()) < std::pair(b.offset, b.bytes());
  });
  check_no_gaps(path, header.tensors, values_at, size);
  return header;
}

}  // namespace weft
