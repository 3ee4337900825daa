#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "collectives/cases/attempt.hpp"
#include "cuda/fake/on_fake_gpu.hpp"
#include "weft/group.hpp"

namespace weft::test {

struct RandomCases {
  std::uint64_t seed = 0;
  int number = 0;
  std::function<bool(Case const&)> takes = [](Case const&) { return true; };  ///< the others are left out
  bool in_any_order = false;                                                  ///< see Attempt
};

/// Random calls on memory of a fake GPU, beside the serial reference: on two streams and inline, alone and in groups,
/// four under way at a time.
inline void run_cases(FakeGpu const& gpu, Communicator& world, RandomCases const& cases) {
  Arena arena(world, 16, std::size_t{1} << 18U, kGpu);
  std::array const streams{gpu.make_stream(), gpu.make_stream(true)};
  std::vector<std::unique_ptr<Attempt>> together;
  auto const finish_all = [&] {
    for (auto const& attempt : together) attempt->finish();
    together.clear();
  };
  for (int number = 0; number < cases.number; ++number) {
    auto const one = make_case(cases.seed, static_cast<std::uint64_t>(number), world.size());
    // Fresh memory is freed when its case ends, which waits for the GPU: fine one by one.
    if (!cases.takes(one) || (one.memory == Memory::fresh && one.count > 5000)) continue;
    together.push_back(std::make_unique<Attempt>(world, one, arena, 2 * together.size(), cases.in_any_order));
    bool const grouped = one.seed % 3 == 0;
    auto const choice = (one.seed >> 32U) % 3;
    CollectiveOptions const how = choice < 2 ? CollectiveOptions{.stream = streams[choice]} : CollectiveOptions{};
    if (grouped) {
      Group group(world, how);
      together.back()->issue({});
      static_cast<void>(group.end());
    } else {
      together.back()->issue(how);
    }
    if (together.size() == 4) finish_all();
  }
  finish_all();
}

}  // namespace weft::test
