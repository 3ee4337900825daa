// FullySharded's steps in a CUDA graph.
#include <vector>

#include "cuda/fake/fake_fully_sharded.hpp"
#include "weft/cuda_graph.hpp"

namespace weft::test {
namespace {

struct Case {
  FullyShardedOptions options;
  std::size_t passes = 1;
  int ranks = 2;
};

std::vector<Case> cases() {
  std::vector<Case> cases;
  for (std::size_t const prefetch : {0U, 1U, 3U}) {
    for (bool const poison : {false, true}) cases.push_back({{.prefetch = prefetch, .poison = poison}});
  }
  cases.push_back({{.reshard_after_forward = false}});
  cases.push_back({{.poison = true}, 3});
  cases.push_back({{}, 2, 1});
  cases.push_back({{.shard_size = 2, .poison = true}, 1, 4});
  Case clipped;
  clipped.options.gradients.max_norm = 0.5;
  cases.push_back(clipped);
  return cases;
}

/// Steps that differ by their parameters alone. Launched as a graph, all but the first.
std::vector<std::byte> train(Communicator& world, FakeGpu& gpu, Training const& t, FullyShardedOptions options,
                             bool in_graph) {
  Stream compute = gpu.make_stream();
  options.compute = compute;
  Parameters const values(t.specs);
  UnitsOnGpu const parameters(gpu, units_of(values, t, 4));
  FullySharded model(world, parameters.units(), options);
  UnitTrainer trainer(gpu, model, t, world.rank(), &compute);
  trainer.step(0);
  if (!in_graph) {
    for (std::size_t step = 1; step < t.steps; ++step) trainer.step(0);
    return trainer.gathered();
  }
  model.wait_gathers();
  auto const graph = cuda::Graph::record(compute, [&] {
    trainer.step(0);
    model.wait_gathers();
  });
  auto const waits = gpu.host_waits_here();
  for (std::size_t step = 1; step < t.steps; ++step) graph.launch(compute);
  EXPECT_EQ(gpu.host_waits_here(), waits);
  return trainer.gathered();
}

TEST_F(FakeFullySharded, AGraphHasTheBitsOfTheEagerStep) {
  Training t{.specs = awkward(), .first = AdamWOptions{.lr = 0.01}, .second = SgdOptions{.lr = 0.1}, .steps = 5};
  std::vector<Case> const all = cases();
  for (std::size_t i = 0; i < all.size(); ++i) {
    t.passes = all[i].passes;
    run_ranks(all[i].ranks, [&](Communicator& world) {
      EXPECT_EQ(train(world, gpu, t, all[i].options, true), train(world, gpu, t, all[i].options, false))
          << "case " << i;
    });
  }
}

}  // namespace
}  // namespace weft::test
