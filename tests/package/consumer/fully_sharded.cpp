#include <iostream>
#include <string>
#include <vector>
#include <weft/weft.hpp>

int main() {
  return weft::launch({.ranks = 2}, [](weft::Communicator& world) {
    std::vector<std::vector<float>> layers(3, std::vector<float>(1000));
    std::vector<weft::ShardedUnit> units;  // what is gathered, used and given up together
    for (std::size_t u = 0; u < layers.size(); ++u) {
      weft::AdamWOptions const adamw{.lr = 0.1, .weight_decay = 0};
      units.push_back({"layer " + std::to_string(u), {{{std::span(layers[u])}, adamw}}});
    }
    weft::FullySharded model(world, units);  // keeps half of each unit on each rank; `layers` may go

    float const wanted = static_cast<float>(world.rank());  // each rank's own data; their mean is 0.5
    for (int step = 0; step < 200; ++step) {
      for (std::size_t u = 0; u < units.size(); ++u) {
        model.before_forward(u);  // gathers the unit, and the next one meanwhile; forward reads model.parameter(u)
        model.after_forward(u);   // gives it up
      }
      for (std::size_t u = units.size(); u-- > 0;) {
        model.before_backward(u);
        auto const* weights = static_cast<float const*>(model.parameter(u).data);
        auto* gradient = static_cast<float*>(model.gradient(u).data);
        for (std::size_t j = 0; j < 1000; ++j) gradient[j] = weights[j] - wanted;  // backward
        model.after_backward(u);  // sends the gradients, gives the unit up
      }
      model.step();
    }
    float const learned = model.master(2)[999];  // of the whole parameter: all ranks ask
    if (world.rank() == 0) std::cout << "learned " << learned << "\n";
    return 0;
  });
}
