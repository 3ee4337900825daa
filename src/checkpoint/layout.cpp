#include "checkpoint/layout.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>

#include "checkpoint/tensor_type.hpp"
#include "weft/error.hpp"

namespace weft {
namespace {

using Json = nlohmann::json;

[[noreturn]] void bad(ErrorCode code, std::string const& name, std::string const& what) {
  throw Error(code, fmt::format("CheckpointSaver::save: tensor {}: {}", name, what));
}

bool is_utf8(std::string const& text) {
  try {
    (void)Json(text).dump();
    return true;
  } catch (Json::exception const&) {
    return false;
  }
}

void check_tensor(CheckpointTensor const& one) {
  ConstBufferView const& values = one.values;
  if (one.name.empty() || one.name == "__metadata__" || !is_utf8(one.name)) {
    bad(ErrorCode::invalid_argument, '"' + one.name + '"', "a name is UTF-8, not empty and not __metadata__");
  }
  if (!is_valid(values.dtype) || safetensors_name(values.dtype).empty()) {
    bad(ErrorCode::unsupported, one.name,
        fmt::format("safetensors has no type {}", is_valid(values.dtype) ? to_string(values.dtype) : "of this number"));
  }
  if (values.device.type != DeviceType::cpu) {
    bad(ErrorCode::unsupported, one.name,
        fmt::format("lies on {}; copy it to the CPU first", to_string(values.device)));
  }
  if (values.data == nullptr && values.count != 0 && !one.fill)
    bad(ErrorCode::invalid_argument, one.name, "has no memory");
  auto const count = count_of(one.shape, size_of(values.dtype));
  if (!count) bad(ErrorCode::invalid_argument, one.name, "its shape has more elements than memory");
  if (one.first > *count || values.count > *count - one.first) {
    bad(ErrorCode::invalid_argument, one.name,
        fmt::format("elements [{}, {}) are not within its {}", one.first, one.first + values.count, *count));
  }
}

std::string shape_and_type(std::vector<std::size_t> const& shape, DataType dtype) {
  return fmt::format("{} of {}", Json(shape).dump(), to_string(dtype));
}

// A rank may have several ranges of a tensor, but not two tensors of one name, nor one range twice.
void check_repeats(std::span<CheckpointTensor const> tensors) {
  std::map<std::string_view, CheckpointTensor const*> firsts;
  std::set<std::pair<std::string_view, std::size_t>> begins;
  for (CheckpointTensor const& one : tensors) {
    CheckpointTensor const& first = *firsts.emplace(one.name, &one).first->second;
    if (one.shape != first.shape || one.values.dtype != first.values.dtype) {
      bad(ErrorCode::invalid_argument, one.name,
          fmt::format("is named twice on one rank, with shape {} and with {}; each tensor needs a name of its own",
                      shape_and_type(first.shape, first.values.dtype), shape_and_type(one.shape, one.values.dtype)));
    }
    if (one.values.count != 0 && !begins.emplace(one.name, one.first).second) {
      bad(ErrorCode::invalid_argument, one.name,
          fmt::format("is named twice on one rank, both times with element {}; give each element once", one.first));
    }
  }
}

/// What is known of a tensor from the descriptions of the ranks so far.
struct Known {
  Checkpoint::Tensor tensor;
  std::map<std::pair<std::size_t, std::size_t>, std::vector<std::size_t>> owners;  ///< by range: the ranks that have it
};

void add_part(std::map<std::string, Known>& tensors, Json const& described, std::size_t rank) {
  auto const name = described[0].get<std::string>();
  auto const dtype = static_cast<DataType>(described[1].get<int>());
  auto const shape = described[2].get<std::vector<std::size_t>>();
  auto const [found, is_new] = tensors.try_emplace(name);
  Checkpoint::Tensor& tensor = found->second.tensor;
  if (is_new) {
    tensor = {name, shape, *count_of(shape, size_of(dtype)), dtype};
  } else if (tensor.shape != shape || tensor.dtype != dtype) {
    bad(ErrorCode::mismatch, name,
        fmt::format("rank {} has shape {}, a rank before it {}", rank, shape_and_type(shape, dtype),
                    shape_and_type(tensor.shape, tensor.dtype)));
  }
  auto const first = described[3].get<std::size_t>();
  auto const count = described[4].get<std::size_t>();
  if (count != 0 || tensor.count == 0) found->second.owners[{first, count}].push_back(rank);
}

// Chooses who writes each range: of the ranks that have it, the one that writes least so far. `bytes`: what each rank
// writes.
std::vector<IndexPart> choose_writers(Known const& known, std::vector<std::size_t>& bytes) {
  std::vector<IndexPart> parts;
  for (auto const& [range, ranks] : known.owners) {
    std::size_t const writer = *std::min_element(ranks.begin(), ranks.end(),
                                                 [&](std::size_t a, std::size_t b) { return bytes[a] < bytes[b]; });
    bytes[writer] += range.second * size_of(known.tensor.dtype);
    parts.push_back({writer, part_name(known.tensor, range.first, range.second), range.first, range.second, {}});
  }
  return parts;
}

// A part's name is its tensor's with a range, which must not be another tensor's own name.
void check_names(std::vector<IndexTensor> const& tensors) {
  std::map<std::string, std::string const*> owners;
  for (IndexTensor const& one : tensors) {
    for (IndexPart const& part : one.parts) {
      auto const [found, is_new] = owners.emplace(part.stored_as, &one.tensor.name);
      if (!is_new) {
        bad(ErrorCode::invalid_argument, one.tensor.name,
            fmt::format("is called as a part of tensor {}", *found->second));
      }
    }
  }
}

}  // namespace

void check_tensors(std::span<CheckpointTensor const> tensors) {
  for (CheckpointTensor const& one : tensors) check_tensor(one);
  check_repeats(tensors);
}

std::string describe(std::span<CheckpointTensor const> tensors) {
  Json all = Json::array();
  for (CheckpointTensor const& one : tensors) {
    all.push_back({one.name, static_cast<int>(one.values.dtype), one.shape, one.first, one.values.count});
  }
  return all.dump();
}

std::vector<IndexTensor> plan_tensors(std::span<std::string const> descriptions) {
  std::map<std::string, Known> by_name;
  for (std::size_t rank = 0; rank < descriptions.size(); ++rank) {
    for (Json const& described : Json::parse(descriptions[rank])) add_part(by_name, described, rank);
  }
  std::vector<std::size_t> bytes(descriptions.size(), 0);
  std::vector<IndexTensor> tensors;
  for (auto const& [name, known] : by_name) {
    tensors.push_back({known.tensor, choose_writers(known, bytes)});
    std::string const wrong = sort_and_check(tensors.back());
    if (!wrong.empty()) bad(ErrorCode::mismatch, name, wrong + " in the ranks' ranges");
  }
  check_names(tensors);
  return tensors;
}

std::vector<FilePart> parts_of(std::span<IndexTensor const> tensors, std::size_t file) {
  std::vector<FilePart> parts;
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    for (std::size_t p = 0; p < tensors[t].parts.size(); ++p) {
      if (tensors[t].parts[p].file == file) parts.push_back({t, p});
    }
  }
  std::stable_sort(parts.begin(), parts.end(), [&](FilePart const& a, FilePart const& b) {
    return size_of(tensors[a.tensor].tensor.dtype) > size_of(tensors[b.tensor].tensor.dtype);
  });
  return parts;
}

std::vector<StoredTensor> stored(std::span<IndexTensor const> tensors, std::span<FilePart const> parts) {
  std::vector<StoredTensor> all;
  for (FilePart const& one : parts) {
    Checkpoint::Tensor const& tensor = tensors[one.tensor].tensor;
    IndexPart const& part = tensors[one.tensor].parts[one.part];
    bool const whole = part.count == tensor.count;
    all.push_back(
        {part.stored_as, tensor.dtype, whole ? tensor.shape : std::vector<std::size_t>{part.count}, part.count, 0});
  }
  return all;
}

}  // namespace weft
