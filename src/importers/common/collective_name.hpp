#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "weft/op_graph.hpp"

namespace weft {

/// What kind of name shows that something is a collective.
enum class CollectiveEvidence : std::uint8_t {
  call,    ///< torch's operator: "c10d::allreduce_"
  title,   ///< what a back end calls its work: "gloo:all_reduce"
  kernel,  ///< "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
  params,  ///< torch's note of a call's arguments: "record_param_comms"
};

struct NamedCollective {
  CollectiveEvidence evidence = CollectiveEvidence::call;
  /// The kind; empty where the name does not tell. reduce counts as all_reduce, gather and scatter as all_to_all, send
  /// and recv as permute, a barrier as all_reduce.
  std::optional<CollectiveKind> kind{};
};

/// What the name of an event or a node says; empty where it names no collective.
[[nodiscard]] std::optional<NamedCollective> collective_named(std::string_view name);

/// The kind that a name without "c10d::" or the like stands for: "allreduce_", "_allgather_base", "all_to_all".
[[nodiscard]] std::optional<CollectiveKind> collective_kind_named(std::string_view name);

/// Bytes of an element, by torch's name of its type ("float", "c10::BFloat16", "Long"); empty for an unknown type.
[[nodiscard]] std::optional<std::int64_t> element_bytes_named(std::string_view type);

}  // namespace weft
