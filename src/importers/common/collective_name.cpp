#include "importers/common/collective_name.hpp"

#include <array>
#include <cctype>
#include <string>
#include <utility>

namespace weft {

namespace {

/// The letters of a name, as small letters.
std::string letters_of(std::string_view name) {
  std::string letters;
  for (char const each : name) {
    auto const c = static_cast<unsigned char>(each);
    if (std::isalpha(c) != 0) letters += static_cast<char>(std::tolower(c));
  }
  return letters;
}

std::optional<std::string_view> without(std::string_view prefix, std::string_view name) {
  if (name.substr(0, prefix.size()) != prefix) return std::nullopt;
  return name.substr(prefix.size());
}

}  // namespace

std::optional<CollectiveKind> collective_kind_named(std::string_view name) {
  using enum CollectiveKind;
  // Of two names that begin alike the longer one comes first.
  constexpr std::array<std::pair<std::string_view, CollectiveKind>, 13> kBeginnings = {{
      {"allreduce", all_reduce},
      {"allgather", all_gather},
      {"alltoall", all_to_all},
      {"reducescatter", reduce_scatter},
      {"reduce", all_reduce},
      {"broadcast", broadcast},
      {"bcast", broadcast},
      {"gather", all_to_all},
      {"scatter", all_to_all},
      {"send", permute},
      {"recv", permute},
      {"barrier", all_reduce},
      {"monitoredbarrier", all_reduce},
  }};
  auto const letters = letters_of(name);
  for (auto const& [beginning, kind] : kBeginnings) {
    if (without(beginning, letters)) return kind;
  }
  return std::nullopt;
}

std::optional<NamedCollective> collective_named(std::string_view name) {
  using enum CollectiveEvidence;
  if (name == "record_param_comms") return NamedCollective{.evidence = params};
  constexpr std::array<std::pair<std::string_view, CollectiveEvidence>, 10> kPrefixes = {{
      {"c10d::", call},
      {"_c10d_functional::", call},
      {"nccl:", title},
      {"gloo:", title},
      {"weft:", title},
      {"mpi:", title},
      {"ucc:", title},
      {"xccl:", title},
      {"ncclDevKernel_", kernel},
      {"ncclKernel_", kernel},
  }};
  for (auto const& [prefix, evidence] : kPrefixes) {
    auto const rest = without(prefix, name);
    if (!rest) continue;
    if (rest->find("wait") != std::string_view::npos) return std::nullopt;
    return NamedCollective{.evidence = evidence, .kind = collective_kind_named(*rest)};
  }
  return std::nullopt;
}

std::optional<std::int64_t> element_bytes_named(std::string_view type) {
  if (auto const rest = without("c10::", type)) type = *rest;
  auto const letters = letters_of(type);
  constexpr std::array<std::pair<std::string_view, std::int64_t>, 17> kTypes = {{
      {"float", 4},
      {"double", 8},
      {"bfloat", 2},
      {"half", 2},
      {"longint", 8},
      {"long", 8},
      {"int", 4},
      {"short", 2},
      {"shortint", 2},
      {"char", 1},
      {"unsignedchar", 1},
      {"signedchar", 1},
      {"byte", 1},
      {"bool", 1},
      {"complexhalf", 4},
      {"complexfloat", 8},
      {"complexdouble", 16},
  }};
  // Of the numbers in names only those of the small types matter: Float8_e4m3fn.
  if (type.find("loat8") != std::string_view::npos) return 1;
  for (auto const& [known, bytes] : kTypes) {
    if (letters == known) return bytes;
  }
  return std::nullopt;
}

}  // namespace weft
