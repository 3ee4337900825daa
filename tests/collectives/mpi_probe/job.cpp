#include "collectives/mpi_probe/job.hpp"

#include <span>
#include <stdexcept>

namespace weft::test {

void require(bool condition, std::string const& what) {
  if (!condition) throw std::runtime_error(what);
}

void expect_error(ErrorCode code, std::string const& words, std::function<void()> const& body) {
  try {
    body();
  } catch (Error const& error) {
    require(error.code() == code && std::string(error.what()).find(words) != std::string::npos,
            "unexpected error, wanted " + std::string(to_string(code)) + " with \"" + words + "\": " + error.what());
    return;
  }
  throw std::runtime_error("no error, wanted " + std::string(to_string(code)));
}

float all_reduce_one(Communicator& world, CollectiveOptions const& how) {
  float one = 1;
  float sum = 0;
  world.all_reduce(std::span<float const>(&one, 1), std::span(&sum, 1), ReduceOp::sum, how);
  return sum;
}

}  // namespace weft::test
