// Started on test hosts by hosts_test.py:
//   hosts_probe sums COUNT…        all_reduces, all_gathers and broadcasts of so many f32 whose results are known
//   hosts_probe averages COUNT…    all_reduces of f32, which WEFT_WIRE may have rounded
//   hosts_probe loop TIMEOUT_MS FOLDER COUNT [OPERATION]
//                                  all_reduces of so many f32, or reduce_scatters or all_gathers, until one fails;
//                                  FOLDER/rankN says so, as a link by which standard output would leave may be cut
// Exits with 0 where all went well; `loop` with 3 for the failure that it waits for.
#include <weft/weft.hpp>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

/// What `rank` contributes at `i`: whole numbers, whose sums are exact.
float contribution(int rank, std::size_t i) {
  return static_cast<float>((i * 7 + static_cast<std::size_t>(rank) * 31) % 1009);
}

void require(bool right, char const* what, std::size_t count) {
  if (!right) throw std::runtime_error(std::string(what) + " of " + std::to_string(count) + " is wrong");
}

std::vector<float> contributions(int rank, std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = contribution(rank, i);
  return values;
}

void check_sums(weft::Communicator& world, std::size_t count) {
  auto const mine = contributions(world.rank(), count);
  std::vector<float> expected(count);
  for (int rank = 0; rank < world.size(); ++rank) {
    for (std::size_t i = 0; i < count; ++i) expected[i] += contribution(rank, i);
  }
  std::vector<float> sums(count, -1);
  world.all_reduce(std::span<float const>(mine), std::span(sums), weft::ReduceOp::sum);
  require(sums == expected, "all_reduce", count);

  std::vector<float> all(count * static_cast<std::size_t>(world.size()), -1);
  world.all_gather(std::span<float const>(mine), std::span(all));
  for (int rank = 0; rank < world.size(); ++rank) {
    auto const part = std::span(all).subspan(static_cast<std::size_t>(rank) * count, count);
    require(std::vector<float>(part.begin(), part.end()) == contributions(rank, count), "all_gather", count);
  }

  auto const last = world.size() - 1;
  auto copy = mine;
  world.broadcast(std::span(copy), last);
  require(copy == contributions(last, count), "broadcast", count);
}

int sums(weft::Communicator& world, std::vector<std::string> const& counts) {
  for (auto const& count : counts) check_sums(world, std::stoul(count));
  world.barrier();
  std::printf("rank %d of %d: right\n", world.rank(), world.size());
  return 0;
}

/// Within what fp8's e4m3 takes from each host's mean and from the result, of values that are not negative.
int averages(weft::Communicator& world, std::vector<std::string> const& counts) {
  for (auto const& text : counts) {
    auto const count = std::stoul(text);
    auto values = contributions(world.rank(), count);
    std::vector<double> expected(count);
    for (int rank = 0; rank < world.size(); ++rank) {
      for (std::size_t i = 0; i < count; ++i) expected[i] += static_cast<double>(contribution(rank, i)) / world.size();
    }
    world.all_reduce(std::span<float const>(values), std::span(values), weft::ReduceOp::avg);
    for (std::size_t i = 0; i < count; ++i) {
      require(std::abs(static_cast<double>(values[i]) - expected[i]) <= 0.14 * expected[i] + 0.1, "average", count);
    }
  }
  world.barrier();
  std::printf("rank %d of %d: right\n", world.rank(), world.size());
  return 0;
}

/// A call of `values` in all.
void call(weft::Communicator& world, std::string const& operation, std::vector<float>& values,
          weft::CollectiveOptions const& options) {
  auto const all = std::span(values);
  auto const part = all.subspan(0, values.size() / static_cast<std::size_t>(world.size()));
  auto const whole = all.subspan(0, part.size() * static_cast<std::size_t>(world.size()));
  if (operation == "reduce_scatter") {
    std::vector<float> result(part.size());
    world.reduce_scatter(std::span<float const>(whole), std::span(result), weft::ReduceOp::max, options);
  } else if (operation == "all_gather") {
    std::vector<float> const mine(part.begin(), part.end());
    world.all_gather(std::span<float const>(mine), whole, options);
  } else {
    world.all_reduce(std::span<float const>(all), all, weft::ReduceOp::max, options);
  }
}

int loop(weft::Communicator& world, std::chrono::milliseconds timeout, std::string const& folder, std::size_t count,
         std::string const& operation) {
  constexpr int kEnough = 20;  // calls after which the test may do its worst
  std::ofstream diary(folder + "/rank" + std::to_string(world.rank()));
  std::vector<float> values(count, 1);
  weft::CollectiveOptions patient;
  weft::CollectiveOptions hasty;
  hasty.timeout = timeout;
  try {
    for (int calls = 0;; ++calls) {
      if (calls == kEnough) diary << "goes on\n" << std::flush;
      call(world, operation, values, calls < kEnough ? patient : hasty);
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  } catch (weft::Error const& error) {
    diary << "failed: " << error.what() << "\n" << std::flush;
  }
  return 3;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> const words(argv + 1, argv + argc);
  if (words.size() < 2 || (words[0] == "loop" && words.size() < 4)) return 2;
  return weft::launch({}, [&](weft::Communicator& world) {
    if (words[0] == "loop") {
      return loop(world, std::chrono::milliseconds(std::stol(words[1])), words[2], std::stoul(words[3]),
                  words.size() > 4 ? words[4] : "all_reduce");
    }
    if (words[0] == "averages") return averages(world, {words.begin() + 1, words.end()});
    return sums(world, {words.begin() + 1, words.end()});
  });
}
