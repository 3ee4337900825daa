#include <iostream>
#include <vector>
#include <weft/weft.hpp>

int main() {
  return weft::launch({.ranks = 2}, [](weft::Communicator& world) {
    std::vector<float> weights(1000);
    weft::DataParallel model(world, {std::span(weights)});  // rank 0's weights, on every rank
    weft::Optimizer optimizer({std::span(weights)}, weft::AdamWOptions{.lr = 0.1, .weight_decay = 0});

    float const wanted = static_cast<float>(world.rank());  // each rank's own data; their mean is 0.5
    for (int step = 0; step < 200; ++step) {
      auto* gradient = static_cast<float*>(model.gradient(0).data);
      for (std::size_t i = 0; i < weights.size(); ++i) gradient[i] = weights[i] - wanted;  // backward
      model.mark_ready(0);  // sent while backward goes on
      model.finish();       // averaged over the ranks
      optimizer.begin_step();
      optimizer.update(0, model.gradient(0));
    }
    if (world.rank() == 0) std::cout << "learned " << weights[999] << "\n";
    return 0;
  });
}
