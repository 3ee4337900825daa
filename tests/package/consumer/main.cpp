#include <iostream>
#include <weft/weft.hpp>

int main() {
  return weft::launch({.ranks = 2}, [](weft::Communicator& world) {
    weft::Buffer numbers = world.allocate(1000, weft::DataType::f32);
    for (float& x : numbers.as<float>()) x = static_cast<float>(world.rank() + 1);
    world.all_reduce(numbers.view(), numbers.view(), weft::ReduceOp::sum);
    if (world.rank() == 0) std::cout << "sum " << numbers.as<float>()[999] << "\n";
    return 0;
  });
}
