#include <chrono>
#include <iostream>
#include <vector>
#include <weft/weft.hpp>

int main() {
  return weft::launch({.ranks = 2}, [](weft::Communicator& world) {
    std::vector<float> first(1 << 20);
    std::vector<float> second(1 << 20);
    weft::DataParallel model(world, {std::span(first), std::span(second)});
    auto const now = [] { return std::chrono::steady_clock::now(); };
    for (int step = 0; step < 3; ++step) {
      auto const begin = now();
      for (std::size_t tensor : {1, 0}) {  // backward: the last layer first
        auto* gradient = static_cast<float*>(model.gradient(tensor).data);
        for (std::size_t i = 0; i < first.size(); ++i) gradient[i] = static_cast<float>(i % 7);
        model.mark_ready(tensor);
      }
      weft::Interval const backward{begin, now()};
      model.finish();
      auto const report = weft::OverlapReport::build({begin, now()}, {&backward, 1}, model.bucketer().timings());
      if (step == 2 && world.rank() == 0) std::cout << weft::format_overlap_report(report, "step 2");
    }
    return 0;
  });
}
