#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "weft/op_graph.hpp"

namespace weft::chakra {

/// What lies in torch's storages at a point of the trace, as tensors of a graph.
class Storages {
 public:
  explicit Storages(OpGraph& graph) : graph_(graph) {}

  /// A number stands for other memory from now on, in which nothing was written yet.
  void allocate(std::int64_t storage);
  /// The same, made within an operator: it has written it, should anything read it.
  void make_within(OpId op, std::int64_t storage);

  void read(OpId op, std::int64_t storage, std::int64_t extent);
  /// The operator's result lies in memory of its own.
  void make(OpId op, std::int64_t storage, std::int64_t extent);
  /// It writes into what was there.
  void write(OpId op, std::int64_t storage, std::int64_t extent);
  [[nodiscard]] bool is_empty(std::int64_t storage) const;

  /// Once all operators are there.
  void finish();

 private:
  struct Content {
    TensorId tensor = kNone;
    OpId made_by = kNone;  ///< of what was not written since
    bool allocated = false;
    std::vector<OpId> users{};  ///< since it was written last, and what wrote it
  };

  TensorId add(std::string name, TensorId alias_of);
  void touch(TensorId tensor, std::int64_t extent);
  TensorId made(Content& content, std::int64_t storage, OpId by);

  OpGraph& graph_;
  std::unordered_map<std::int64_t, Content> contents_;
  std::vector<TensorId> roots_;        ///< of each tensor
  std::vector<std::int64_t> extents_;  ///< of each root
};

}  // namespace weft::chakra
