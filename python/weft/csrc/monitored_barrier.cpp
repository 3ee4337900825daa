// torch's barrier that says who did not come. Goes through the store, so that a rank that is missing breaks nothing
// else.
#include <algorithm>

#include "process_group.hpp"

namespace weft::torch_backend {
namespace {

using Clock = std::chrono::steady_clock;

std::string numbers(std::vector<int> const& ranks) {
  std::string text;
  for (int const rank : ranks) text += (text.empty() ? "" : ", ") + std::to_string(rank);
  return text;
}

bool comes(c10d::Store& store, std::string const& key, Clock::time_point deadline) {
  auto const left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
  try {
    store.wait({key}, std::max(left, std::chrono::milliseconds(1)));
    return true;
  } catch (std::exception const&) {
    return store.check({key});  // false is what to report; a broken store throws here
  }
}

}  // namespace

void ProcessGroupWeft::monitoredBarrier(c10d::BarrierOptions const& opts, bool wait_all_ranks) {
  auto const limit = opts.timeout == c10d::kUnsetTimeout ? options_->timeout : opts.timeout;
  auto const deadline = Clock::now() + limit;
  auto const round = "weft/monitored/" + std::to_string(monitored_barriers_++) + "/";
  auto const self = std::to_string(getRank());
  auto const verdict = round + "verdict";
  if (getRank() != 0) {
    store_->set(round + self, std::string("here"));
    auto const passed = comes(*store_, verdict, deadline) && store_->get_to_str(verdict) == "passed";
    // The last to read tidies up.
    if (passed && store_->add(round + "readers", 1) == getSize() - 1) {
      for (int r = 1; r < getSize(); ++r) store_->deleteKey(round + std::to_string(r));
      store_->deleteKey(verdict);
      store_->deleteKey(round + "readers");
    }
    TORCH_CHECK(passed, "[Rank ", self, "]: Rank ", self,
                " successfully reached monitoredBarrier, but received errors ",
                "while waiting for send/recv from rank 0. Please check rank 0 logs for faulty rank.");
    return;
  }
  TORCH_CHECK(limit.count() > 0, "[Rank 0]: Rank 0 timed out in monitoredBarrier after ", limit.count(), " ms.");
  std::vector<int> missing;
  for (int r = 1; r < getSize() && (wait_all_ranks || missing.empty()); ++r) {
    if (!comes(*store_, round + std::to_string(r), deadline)) missing.push_back(r);
  }
  if (getSize() > 1) store_->set(verdict, std::string(missing.empty() ? "passed" : "failed"));
  TORCH_CHECK(missing.empty(), "[Rank 0]: ", wait_all_ranks ? "Ranks " : "Rank ", numbers(missing),
              " failed to pass monitoredBarrier in ", limit.count(), " ms");
}

}  // namespace weft::torch_backend
