#include "run_record.hpp"

#include <algorithm>

namespace train_gpt {

std::span<StepRecord const> RunRecord::counted() const noexcept {
  std::span<StepRecord const> const all(steps);
  return all.size() > 4 ? all.subspan(2) : all;
}

double RunRecord::median(double weft::OverlapReport::*figure) const {
  std::vector<double> values;
  for (StepRecord const& step : counted()) {
    values.push_back(step.overlap.*figure);
  }
  if (values.empty()) {
    return 0.0;
  }
  auto const middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double RunRecord::tokens_per_second() const {
  double const milliseconds = median(&weft::OverlapReport::step_ms);
  return milliseconds > 0.0 ? 1000.0 * tokens_per_step / milliseconds : 0.0;
}

double RunRecord::hidden_percent() const {
  double const communication = median(&weft::OverlapReport::communication_ms);
  return communication > 0.0 ? 100.0 * median(&weft::OverlapReport::hidden_ms) / communication : 100.0;
}

std::vector<weft::BucketTiming> since(weft::TimePoint start, std::span<weft::BucketTiming const> buckets) {
  std::vector<weft::BucketTiming> after(buckets.begin(), buckets.end());
  for (weft::BucketTiming& bucket : after) {
    for (auto* const time : {&bucket.ready, &bucket.started, &bucket.finished}) *time = std::max(*time, start);
  }
  return after;
}

weft::OverlapReport overlap_of(StepTimes const& times, std::span<Traffic const> traffic) {
  std::vector<weft::BucketTiming> buckets;
  for (Traffic const& kind : traffic) {
    buckets.insert(buckets.end(), kind.buckets.begin(), kind.buckets.end());
  }
  auto const compute = times.compute();
  return weft::OverlapReport::build(times.step(), compute, buckets);
}

}  // namespace train_gpt
