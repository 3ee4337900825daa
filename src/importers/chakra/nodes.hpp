#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "importers/common/collective_name.hpp"
#include "weft/import_report.hpp"

namespace weft::chakra {

inline constexpr std::size_t kNoParent = static_cast<std::size_t>(-1);

/// A tensor as an argument or a result of a node.
struct TensorUse {
  std::int64_t storage = 0;
  std::int64_t bytes = 0;   ///< of its elements
  std::int64_t extent = 0;  ///< bytes from the storage's beginning to its last element
  std::size_t argument = 0;
  std::vector<std::int64_t> shape{};
};

struct Node {
  std::int64_t id = 0;
  std::string name{};
  std::size_t parent = kNoParent;
  std::string schema{};
  bool is_kernel = false;  ///< made by a compiler: it has no schema
  std::vector<TensorUse> inputs{};
  std::vector<TensorUse> outputs{};
  std::vector<bool> writes_argument{};  ///< by its schema
  std::optional<NamedCollective> collective{};
  nlohmann::json const* json = nullptr;
};

/// Reads the nodes, sorted by id, so that a node comes before those within it.
/// @throws Error{invalid_argument} naming source and node.
[[nodiscard]] std::vector<Node> read_nodes(nlohmann::json const& list, std::string const& source, ImportReport& report);

/// The value of an attribute in a node's list "attrs"; null where there is none of that name.
[[nodiscard]] nlohmann::json attribute(nlohmann::json const& node, char const* name);

/// For each argument whether the schema says that it is written: "add_(Tensor(a!) self, Tensor other) -> Tensor(a!)".
[[nodiscard]] std::vector<bool> written_arguments(std::string const& schema);

}  // namespace weft::chakra
