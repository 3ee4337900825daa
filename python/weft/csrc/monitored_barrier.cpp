#include "monitored_barrier.hpp"

#include <algorithm>
#include <vector>

#include <c10/util/Exception.h>

#include "process_group.hpp"

namespace weft::torch_backend {
namespace {

constexpr char const* kVerdict = "verdict";
constexpr char const* kPassed = "passed";

std::string numbers(std::vector<int> const& ranks) {
  std::string text;
  for (int const rank : ranks) text += (text.empty() ? "" : ", ") + std::to_string(rank);
  return text;
}

}  // namespace

std::string MonitoredBarrier::key(std::string const& what) const {
  return "weft/monitored/" + std::to_string(round_) + "/" + what;
}

bool MonitoredBarrier::comes(std::string const& key, Clock::time_point deadline) {
  auto const left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
  try {
    store_->wait({key}, std::max(left, std::chrono::milliseconds(1)));
    return true;
  } catch (std::exception const&) {
    return store_->check({key});  // false is what to report; a broken store throws here
  }
}

void MonitoredBarrier::enter(std::chrono::milliseconds limit, bool wait_all_ranks) {
  std::lock_guard const lock(mutex_);
  rank_ == 0 ? await_everybody(limit, wait_all_ranks) : await_verdict(limit);
}

void MonitoredBarrier::await_everybody(std::chrono::milliseconds limit, bool wait_all_ranks) {
  TORCH_CHECK(limit.count() > 0, "[Rank 0]: Rank 0 timed out in monitoredBarrier after ", limit.count(), " ms.");
  auto const deadline = Clock::now() + limit;
  std::vector<int> missing;
  for (int r = 1; r < size_ && (wait_all_ranks || missing.empty()); ++r) {
    if (!comes(key(r), deadline)) missing.push_back(r);
  }
  if (size_ > 1) store_->set(key(kVerdict), std::string(missing.empty() ? kPassed : "failed"));
  ++round_;
  TORCH_CHECK(missing.empty(), "[Rank 0]: ", wait_all_ranks ? "Ranks " : "Rank ", numbers(missing),
              " failed to pass monitoredBarrier in ", limit.count(), " ms");
}

void MonitoredBarrier::await_verdict(std::chrono::milliseconds limit) {
  auto const deadline = Clock::now() + limit;
  if (gave_up_ && store_->check({key(kVerdict)})) take_verdict();  // too late: for this rank that barrier has failed
  store_->set(key(rank_), std::string("here"));
  gave_up_ = !comes(key(kVerdict), deadline);
  if (gave_up_) store_->deleteKey(key(rank_));
  TORCH_CHECK(!gave_up_ && take_verdict(), "[Rank ", rank_, "]: Rank ", rank_,
              " successfully reached monitoredBarrier, but received errors ",
              "while waiting for send/recv from rank 0. Please check rank 0 logs for faulty rank.");
}

bool MonitoredBarrier::take_verdict() {
  auto const passed = store_->get_to_str(key(kVerdict)) == kPassed;
  // The last rank that reads the verdict deletes the keys.
  if (passed && store_->add(key("readers"), 1) == size_ - 1) {
    for (int r = 1; r < size_; ++r) store_->deleteKey(key(r));
    store_->deleteKey(key(kVerdict));
    store_->deleteKey(key("readers"));
  }
  ++round_;
  return passed;
}

void ProcessGroupWeft::monitoredBarrier(c10d::BarrierOptions const& opts, bool wait_all_ranks) {
  constexpr Operation kWhat{c10d::OpType::BARRIER, "monitored_barrier", "weft:monitored_barrier"};
  TORCH_CHECK(!is_parents(), place(kWhat),
              ": this process was forked from the one whose group this is; make one of its own for it");
  monitored_barrier_.enter(opts.timeout == c10d::kUnsetTimeout ? options_->timeout : opts.timeout, wait_all_ranks);
}

}  // namespace weft::torch_backend
