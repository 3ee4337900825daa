#include <iostream>
#include <vector>
#include <weft/weft.hpp>

int main() {
  return weft::launch({.ranks = 2}, [](weft::Communicator& world) {
    std::vector<std::vector<float>> layers(3, std::vector<float>(1000));
    weft::ParameterGroup group{{}, weft::AdamWOptions{.lr = 0.1, .weight_decay = 0}};
    for (auto& layer : layers) group.parameters.emplace_back(std::span(layer));
    weft::ZeroOptimizer zero(world, {group});  // copies; parameters, gradients and states are its own from here on

    float const wanted = static_cast<float>(world.rank());  // each rank's own data; their mean is 0.5
    for (int step = 0; step < 200; ++step) {
      for (std::size_t i = 0; i < layers.size(); ++i) {
        zero.wait_parameter(i);  // forward reads zero.parameter(i) from here on; later layers may still travel
      }
      for (std::size_t i = layers.size(); i-- > 0;) {
        auto const* weights = static_cast<float const*>(zero.parameter(i).data);
        auto* gradient = static_cast<float*>(zero.gradient(i).data);
        for (std::size_t j = 0; j < layers[i].size(); ++j) gradient[j] = weights[j] - wanted;  // backward
        zero.mark_ready(i);  // sent while backward goes on
      }
      zero.step();  // each rank updates its half, and sends it while the next forward begins
    }
    zero.wait_parameters();
    if (world.rank() == 0) std::cout << "learned " << static_cast<float const*>(zero.parameter(2).data)[999] << "\n";
    return 0;
  });
}
