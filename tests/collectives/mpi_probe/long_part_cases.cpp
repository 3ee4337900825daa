#include "collectives/mpi_probe/long_part_cases.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

namespace weft::test {
namespace {

/// Elements: of more than any pipeline has under way at once.
constexpr std::size_t kPart = (std::size_t{700} << 10) / sizeof(std::uint32_t) + 5;

enum class Where { symmetric, scattered, mixed };

/// What `from` has for `to`: no two elements of a case are likely to be equal.
std::uint32_t element(int from, int to, std::size_t i) {
  auto const mixed = (static_cast<std::uint64_t>(from) * 131 + static_cast<std::uint64_t>(to)) * 7'919 + i;
  return static_cast<std::uint32_t>((mixed * 0x9e3779b97f4a7c15U) >> 32U);
}

/// A buffer of `parts` parts, as told.
class Memory {
 public:
  Memory(Communicator& world, Where where, int parts)
      : symmetric_(world.allocate(kPart * static_cast<std::size_t>(parts + 1), DataType::u32)),
        private_(where == Where::mixed && world.rank() == 0 ? kPart * static_cast<std::size_t>(parts) : 0) {
    auto const shift = where == Where::scattered ? 16 * static_cast<std::size_t>(world.rank()) : 0;
    auto const count = kPart * static_cast<std::size_t>(parts);
    span_ = private_.empty() ? symmetric_.as<std::uint32_t>().subspan(shift, count) : std::span(private_);
    std::fill(span_.begin(), span_.end(), 0xdeadbeefU);
  }

  [[nodiscard]] std::span<std::uint32_t> all() const { return span_; }
  [[nodiscard]] std::span<std::uint32_t> part(int index) const {
    return span_.subspan(kPart * static_cast<std::size_t>(index), kPart);
  }
  [[nodiscard]] std::span<std::uint32_t const> given() const { return span_; }

 private:
  Buffer symmetric_;
  std::vector<std::uint32_t> private_;
  std::span<std::uint32_t> span_;
};

void fill(std::span<std::uint32_t> part, int from, int to) {
  for (std::size_t i = 0; i < part.size(); ++i) part[i] = element(from, to, i);
}

void require_part(std::span<std::uint32_t const> part, int from, int to, std::string const& what) {
  for (std::size_t i = 0; i < part.size(); ++i) {
    if (part[i] == element(from, to, i)) continue;
    throw std::runtime_error(what + ": element " + std::to_string(i) + " of rank " + std::to_string(from) +
                             "'s part is wrong");
  }
}

constexpr int kEverybody = 1000;

void check_gathers(Communicator& world, Where where) {
  Memory const one(world, where, 1);
  Memory const many(world, where, world.size());
  fill(one.part(0), world.rank(), kEverybody);
  world.all_gather(one.given(), many.all());
  for (int rank = 0; rank < world.size(); ++rank) require_part(many.part(rank), rank, kEverybody, "all_gather");

  std::fill(many.all().begin(), many.all().end(), 0U);
  fill(many.part(world.rank()), world.rank(), kEverybody);
  world.all_gather(std::span<std::uint32_t const>(many.part(world.rank())), many.all());
  for (int rank = 0; rank < world.size(); ++rank) require_part(many.part(rank), rank, kEverybody, "in place");

  for (int root = 0; root < world.size(); ++root) {
    if (world.rank() == root) fill(one.part(0), root, kEverybody);
    world.broadcast(one.all(), root);
    require_part(one.part(0), root, kEverybody, "broadcast");
    fill(one.part(0), world.rank(), root);
    world.gather(one.given(), world.rank() == root ? many.all() : std::span<std::uint32_t>(), root);
    for (int rank = 0; rank < world.size() && world.rank() == root; ++rank) {
      require_part(many.part(rank), rank, root, "gather");
    }
  }
}

void check_scatters(Communicator& world, Where where) {
  Memory const one(world, where, 1);
  Memory const many(world, where, world.size());
  Memory const got(world, where, world.size());
  for (int rank = 0; rank < world.size(); ++rank) fill(many.part(rank), world.rank(), rank);
  world.all_to_all(many.given(), got.all());
  for (int rank = 0; rank < world.size(); ++rank) require_part(got.part(rank), rank, world.rank(), "all_to_all");
  for (int root = 0; root < world.size(); ++root) {
    world.scatter(world.rank() == root ? many.given() : std::span<std::uint32_t const>(), one.all(), root);
    require_part(one.part(0), root, world.rank(), "scatter");
  }
}

/// So many that partial sums depend on their order.
template <typename T>
std::vector<T> contribution(int rank, std::size_t count) {
  std::mt19937 random(static_cast<std::uint32_t>(rank) * 31 + 5);
  std::normal_distribution<float> normal;
  std::vector<T> values(count);
  for (auto& value : values) {
    if constexpr (std::is_same_v<T, BFloat16>) {
      value = to_bfloat16(normal(random));
    } else {
      value = static_cast<T>(normal(random));
    }
  }
  return values;
}

template <typename T>
void check_sums(Communicator& world, std::size_t count, ReduceOp op) {
  constexpr std::size_t kShort = 1000;  // elements
  auto const mine = contribution<T>(world.rank(), count);
  auto cut = mine;
  for (std::size_t first = 0; first < count; first += kShort) {
    auto const piece = std::span(cut).subspan(first, std::min(kShort, count - first));
    world.all_reduce(std::span<T const>(piece), piece, op);
  }
  std::vector<T> whole(count);
  world.all_reduce(std::span<T const>(mine), std::span(whole), op);
  auto in_place = mine;
  world.all_reduce(std::span<T const>(in_place), std::span(in_place), op);
  for (auto const* sums : {&whole, &in_place}) {
    if (std::memcmp(sums->data(), cut.data(), count * sizeof(T)) == 0) continue;
    throw std::runtime_error("an all_reduce of " + std::to_string(count) + " elements has other bits than its pieces");
  }
}

/// The same bits as an all_reduce's, of a rank's own part; `recv` may be in `send`.
template <typename T>
void check_part_of_sums(Communicator& world, std::size_t part, ReduceOp op) {
  auto const ranks = static_cast<std::size_t>(world.size());
  auto const mine = contribution<T>(world.rank(), part * ranks);
  std::vector<T> whole(part * ranks);
  world.all_reduce(std::span<T const>(mine), std::span(whole), op);
  auto const own = std::span(whole).subspan(part * static_cast<std::size_t>(world.rank()), part);
  std::vector<T> scattered(part);
  world.reduce_scatter(std::span<T const>(mine), std::span(scattered), op);
  auto in_place = mine;
  auto const there = std::span(in_place).subspan(part * static_cast<std::size_t>(world.rank()), part);
  world.reduce_scatter(std::span<T const>(in_place), there, op);
  std::vector<T> rooted(world.rank() == world.size() - 1 ? part * ranks : 0);
  world.reduce(std::span<T const>(mine), std::span(rooted), op, world.size() - 1);
  auto const same = [&](std::span<T const> a, std::span<T const> b) {
    return std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
  };
  if (same(scattered, own) && same(there, own) && (rooted.empty() || same(rooted, whole))) return;
  throw std::runtime_error("a reduce_scatter or reduce of parts of " + std::to_string(part) +
                           " elements has other bits than an all_reduce");
}

/// Who only gives has let go of its own part of the memory that others receive in; and ranks receive in different
/// windows.
void check_released(Communicator& world) {
  auto const parts = static_cast<std::size_t>(world.size());
  std::vector<Buffer> many;
  for (int i = 0; i < world.size(); ++i) many.push_back(world.allocate(kPart * parts, DataType::u32));
  std::vector<std::uint32_t> own(kPart);
  fill(own, world.rank(), kEverybody);
  auto const kept = static_cast<std::size_t>(world.rank());
  for (std::size_t i = 0; i < many.size(); ++i) {
    if (i != kept) many[i] = Buffer();
  }
  auto const mine = many[kept].as<std::uint32_t>();
  world.all_gather(std::span<std::uint32_t const>(own), mine);
  for (int root = 0; root < world.size(); ++root) {
    auto const part = [&](int rank) { return mine.subspan(kPart * static_cast<std::size_t>(rank), kPart); };
    for (int rank = 0; rank < world.size(); ++rank) require_part(part(rank), rank, kEverybody, "released");
    if (world.rank() == root) std::fill(mine.begin(), mine.end(), 0U);
    world.gather(std::span<std::uint32_t const>(own), world.rank() == root ? mine : std::span<std::uint32_t>(), root);
  }
  for (int i = 0; i < 3; ++i) static_cast<void>(world.allocate(kPart, DataType::u32));  // forgets what none holds
}

}  // namespace

void check_long_sums(Communicator& world) {
  constexpr std::size_t kMany = 2'000'003;
  check_sums<float>(world, kMany, ReduceOp::sum);
  check_sums<float>(world, 200'001, ReduceOp::avg);
  check_sums<float>(world, 5'000, ReduceOp::sum);  // fewer lines than there are shares
  check_sums<BFloat16>(world, kMany, ReduceOp::sum);
  check_sums<double>(world, 300'007, ReduceOp::avg);
  check_part_of_sums<float>(world, 350'003, ReduceOp::sum);
  check_part_of_sums<BFloat16>(world, 100'001, ReduceOp::avg);
}

void check_long_elements(Communicator& world) {
  auto const add = [](void* accumulator, void const* next, std::size_t count, void* context) {
    auto* const sums = static_cast<std::uint32_t*>(accumulator);
    auto const* const addends = static_cast<std::uint32_t const*>(next);
    auto const words = count * *static_cast<std::size_t const*>(context);
    for (std::size_t i = 0; i < words; ++i) sums[i] += addends[i];
  };
  for (std::size_t words : {3, 5, 6, 10, 12, 17, 33, 63}) {
    // Whatever memory is staged, parts of it are filled to the last element.
    auto const count = (std::size_t{3} << 20) / (words * sizeof(std::uint32_t)) * words;
    auto const how = Reduction::user(add, &words, words * sizeof(std::uint32_t));
    std::vector<std::uint32_t> send(count);
    std::vector<std::uint32_t> recv(count);
    fill(send, world.rank(), 0);
    auto const require = [&](char const* what, int contributors) {
      for (std::size_t i = 0; i < count; ++i) {
        std::uint32_t expected = 0;
        for (int rank = 0; rank < contributors; ++rank) expected += element(rank, 0, i);
        if (recv[i] == expected) continue;
        throw std::runtime_error(std::string(what) + " of elements of " + std::to_string(words) + " words: word " +
                                 std::to_string(i) + " is wrong");
      }
    };
    ConstBufferView const given{send.data(), count, DataType::u32};
    BufferView const taken{recv.data(), count, DataType::u32};
    world.all_reduce(given, taken, how);
    require("all_reduce", world.size());
    std::fill(recv.begin(), recv.end(), 0U);
    world.reduce(given, taken, how, world.size() - 1);
    if (world.rank() == world.size() - 1) require("reduce", world.size());
    std::fill(recv.begin(), recv.end(), 0U);
    world.scan(given, taken, how);
    require("scan", world.rank() + 1);
  }
}

void check_long_parts(Communicator& world) {
  for (auto const where : {Where::symmetric, Where::scattered, Where::mixed}) {
    check_gathers(world, where);
    check_scatters(world, where);
  }
  check_released(world);
}

}  // namespace weft::test
