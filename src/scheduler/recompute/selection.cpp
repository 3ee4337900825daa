#include "scheduler/recompute/selection.hpp"

#include <algorithm>

namespace weft {

std::vector<Place> late_places(StepOrder const& step, std::vector<double> const& shortage) {
  std::vector<double> sum(shortage.size() + 1, 0);
  for (std::size_t i = 0; i < shortage.size(); ++i) sum[i + 1] = sum[i] + shortage[i];
  std::vector<Place> late(step.graph().ops.size(), kNever);
  std::vector<Place> uses;
  for (std::size_t op = 0; op < late.size(); ++op) {
    uses.assign(1, step.place(static_cast<OpId>(op)));
    for (TensorId const tensor : step.graph().ops[op].writes) {
      for (OpId const reader : step.readers(tensor)) {
        if (!step.writes_into(reader, tensor)) uses.push_back(step.place(reader));
      }
    }
    std::sort(uses.begin(), uses.end());
    double most = 0;
    for (std::size_t i = 0; i + 1 < uses.size(); ++i) {
      double const short_of = sum[static_cast<std::size_t>(uses[i + 1])] - sum[static_cast<std::size_t>(uses[i]) + 1];
      if (uses[i + 1] > uses[i] && short_of > most) {
        most = short_of;
        late[op] = uses[i + 1];
      }
    }
  }
  return late;
}

bool reads_late(StepOrder const& step, Place late, OpId reader, TensorId tensor) {
  return step.place(reader) >= late && !step.writes_into(reader, tensor);
}

}  // namespace weft
