#include "scheduler/recompute/cut_selection.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "scheduler/graph/at.hpp"
#include "scheduler/order/max_flow.hpp"

namespace weft {

namespace {

/// The cut counts in whole units: the seconds of all operators together are this many.
constexpr double kUnits = 1e12;
/// The largest cost of one item, for items that cost more than all operators together.
constexpr double kMostUnits = 4e12;
/// The cost of keeping what is written over by then. It is not unlimited, as late readers may need just that.
constexpr std::int64_t kForbidden = 400'000'000'000'000;

class CutSelection {
 public:
  CutSelection(StepOrder const& step, std::vector<Place> const& late, std::vector<double> const& shortage, double price)
      : step_(step),
        late_(late),
        price_(price),
        sum_(shortage.size() + 1, 0),
        need_(step.graph().ops.size(), kNever),
        cut_(2 + step.graph().ops.size() + step.graph().tensors.size()) {
    for (std::size_t i = 0; i < shortage.size(); ++i) sum_[i + 1] = sum_[i] + shortage[i];
    double seconds = 0;
    for (OpId const op : step.order()) seconds += step.seconds(op);
    unit_ = kUnits / std::max(seconds, 1e-30);
    find_needs();
  }

  std::vector<bool> run() {
    op_node_.assign(step_.graph().ops.size(), kNone);
    tensor_node_.assign(step_.graph().tensors.size(), kNone);
    for (OpId const op : step_.order()) {
      for (TensorId const tensor : step_.graph().ops[at(op)].writes) {
        if (is_read_late(op, tensor)) cut_.add_edge(available(tensor), kSink, MaxFlow::kUnlimited);
      }
    }
    std::vector<bool> again(op_node_.size(), false);
    // The list grows in the loop, by the operators that these need.
    for (std::size_t i = 0; i < open_.size(); ++i) add_operator(open_[i]);
    static_cast<void>(cut_.run(kSource, kSink));
    auto const side = cut_.source_side(kSource);
    for (std::size_t op = 0; op < again.size(); ++op) {
      again[op] = op_node_[op] != kNone && !side[at(op_node_[op])];
    }
    return again;
  }

 private:
  static constexpr int kSource = 0;
  static constexpr int kSink = 1;
  static constexpr int kFirstOp = 2;  ///< nodes of operators, then those of tensors

  [[nodiscard]] bool is_read_late(OpId op, TensorId tensor) const {
    auto const& readers = step_.readers(tensor);
    return std::any_of(readers.begin(), readers.end(),
                       [&](OpId reader) { return reads_late(step_, late_[at(op)], reader, tensor); });
  }

  /// Finds for each operator where its second run would be needed first: no later than this.
  void find_needs() {
    for (auto op = step_.order().rbegin(); op != step_.order().rend(); ++op) {
      Place& need = need_[at(*op)];
      for (TensorId const tensor : step_.graph().ops[at(*op)].writes) {
        for (OpId const reader : step_.readers(tensor)) {
          if (reads_late(step_, late_[at(*op)], reader, tensor)) need = std::min(need, step_.place(reader));
          if (step_.may_repeat(reader)) need = std::min(need, need_[at(reader)]);
        }
      }
    }
  }

  [[nodiscard]] std::int64_t units(double seconds) const {
    return static_cast<std::int64_t>(std::min(std::ceil(seconds * unit_), kMostUnits));
  }

  /// The cost of keeping the tensor from its last early use to its first late one.
  [[nodiscard]] std::int64_t keeping(TensorId tensor, Place until) const {
    if (step_.is_kept(tensor)) return 0;
    OpId const writer = step_.writer(tensor);
    OpId const next = step_.overwritten_by(tensor);
    if (next != kNone && step_.place(next) < until) return kForbidden;
    Place from = writer == kNone ? 0 : step_.place(writer);
    for (OpId const reader : step_.readers(tensor)) {
      if (step_.place(reader) < until) from = std::max(from, step_.place(reader));
    }
    if (until == kNever || from + 1 >= until) return 0;
    double const idle = sum_[at(until)] - sum_[at(from) + 1];
    return units(price_ * static_cast<double>(step_.graph().tensors[at(tensor)].bytes) * idle);
  }

  /// The node that stands for: the tensor's value is there late, kept or made again.
  int available(TensorId tensor) {
    int& node = tensor_node_[at(tensor)];
    if (node != kNone) return node;
    node = kFirstOp + static_cast<int>(op_node_.size()) + tensor;
    OpId const writer = step_.writer(tensor);
    Place const until = writer == kNone ? kNever : need_[at(writer)];
    if (writer == kNone || !step_.may_repeat(writer)) {
      cut_.add_edge(kSource, node, keeping(tensor, until));
      return node;
    }
    int& op = op_node_[at(writer)];
    if (op == kNone) {
      op = kFirstOp + writer;
      cut_.add_edge(kSource, op, units(step_.seconds(writer)) + 1);
      open_.push_back(writer);
    }
    // An edge from the operator's node to this one is cut where the tensor is kept.
    cut_.add_edge(op, node, keeping(tensor, until));
    return node;
  }

  void add_operator(OpId op) {
    for (TensorId const tensor : step_.graph().ops[at(op)].reads) {
      bool const there = step_.writer(tensor) == kNone && step_.overwritten_by(tensor) == kNone;
      if (there || step_.nearest_equal(tensor, need_[at(op)]) != tensor) continue;
      cut_.add_edge(available(tensor), op_node_[at(op)], MaxFlow::kUnlimited);
    }
  }

  StepOrder const& step_;
  std::vector<Place> const& late_;
  double price_;
  double unit_ = 1;
  std::vector<double> sum_;
  std::vector<Place> need_;  ///< by operator
  MaxFlow cut_;
  std::vector<int> op_node_;
  std::vector<int> tensor_node_;
  std::vector<OpId> open_;
};

}  // namespace

std::vector<bool> select_by_cut(StepOrder const& step, std::vector<Place> const& late,
                                std::vector<double> const& shortage, double price) {
  return CutSelection(step, late, shortage, price).run();
}

}  // namespace weft
