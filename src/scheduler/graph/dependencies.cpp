#include "scheduler/graph/dependencies.hpp"

#include <algorithm>

namespace weft {

Dependencies::Dependencies(OpGraph const& graph) {
  auto const writers = writers_of(graph);
  before_begin_.push_back(0);
  std::vector<std::size_t> waiting(graph.ops.size(), 0);
  for (auto const& op : graph.ops) {
    auto const begin = static_cast<std::ptrdiff_t>(before_.size());
    for (TensorId const tensor : op.reads) {
      OpId const writer = writers[static_cast<std::size_t>(tensor)];
      if (writer != kNone) before_.push_back(writer);
    }
    before_.insert(before_.end(), op.after.begin(), op.after.end());
    std::sort(before_.begin() + begin, before_.end());
    before_.erase(std::unique(before_.begin() + begin, before_.end()), before_.end());
    for (auto edge = before_.begin() + begin; edge != before_.end(); ++edge) ++waiting[static_cast<std::size_t>(*edge)];
    before_begin_.push_back(before_.size());
  }
  after_begin_.push_back(0);
  for (auto const count : waiting) after_begin_.push_back(after_begin_.back() + count);
  after_.resize(before_.size());
  std::vector<std::size_t> next(after_begin_.begin(), after_begin_.end() - 1);
  for (std::size_t op = 0; op < graph.ops.size(); ++op) {
    for (OpId const earlier : before(static_cast<OpId>(op))) {
      after_[next[static_cast<std::size_t>(earlier)]++] = static_cast<OpId>(op);
    }
  }
}

}  // namespace weft
