#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "weft/op_graph.hpp"

namespace weft::chakra {

/// Keeps track of what lies in torch's storages at a point of the trace, and adds it to a graph as tensors.
class Storages {
 public:
  explicit Storages(OpGraph& graph) : graph_(graph) {}

  /// The storage's number stands for other memory from now on, in which nothing has been written yet.
  void allocate(std::int64_t storage);
  /// The same, where the memory is made within an operator: if something reads it, this operator has written it.
  void make_within(OpId op, std::int64_t storage);

  void read(OpId op, std::int64_t storage, std::int64_t extent);
  /// The operator's result lies in memory of its own.
  void make(OpId op, std::int64_t storage, std::int64_t extent);
  /// The operator writes into what is there.
  void write(OpId op, std::int64_t storage, std::int64_t extent);
  [[nodiscard]] bool is_empty(std::int64_t storage) const;

  /// To be called once all operators are there.
  void finish();

 private:
  struct Content {
    TensorId tensor = kNone;
    OpId made_by = kNone;  ///< the operator that made it, as long as nobody has written it since
    bool allocated = false;
    std::vector<OpId> users{};  ///< who wrote it last and who has used it since, in order
  };

  TensorId add(std::string name, TensorId alias_of);
  void touch(TensorId tensor, std::int64_t extent);
  TensorId made(Content& content, std::int64_t storage, OpId by);

  OpGraph& graph_;
  std::unordered_map<std::int64_t, Content> contents_;
  std::vector<TensorId> roots_;        ///< by tensor: the tensor that its memory began as
  std::vector<std::int64_t> extents_;  ///< by root: the bytes that are used
};

}  // namespace weft::chakra
