#include "collectives/cases/random_case.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>

#include "collectives/reference.hpp"

namespace weft::test {
namespace {

constexpr char const* kKindNames[] = {
    "all_reduce", "reduce",       "reduce_scatter", "reduce_scatter_v", "scan",         "exscan",
    "all_gather", "all_gather_v", "broadcast",      "gather",           "gather_v",     "scatter",
    "scatter_v",  "all_to_all",   "all_to_all_v",   "send_recv",        "send and recv"};
constexpr char const* kMemoryNames[] = {"private memory",
                                        "symmetric memory",
                                        "symmetric memory at an offset",
                                        "symmetric memory at an offset of each rank's own",
                                        "private memory on some ranks and symmetric on others",
                                        "symmetric memory made for the call"};
constexpr char const* kValuesNames[] = {"whole numbers", "everyday numbers", "special numbers"};
static_assert(std::size(kKindNames) == kKinds && std::size(kMemoryNames) == kMemories);

/// Around lines, blocks and pages, and primes.
constexpr std::size_t kTiny[] = {0, 0, 1, 1, 2, 3, 4, 5, 7, 8, 9, 13, 15, 16, 17, 31, 32, 33, 47, 63, 64, 65, 127, 129};
constexpr std::size_t kSmall[] = {251, 255, 256, 257, 509, 511, 512, 513, 1021, 1023, 1024, 1025};
constexpr std::size_t kMiddle[] = {2039, 2047, 2049, 4093, 4095, 4096, 4097, 8191, 8209};
constexpr std::size_t kLarge[] = {16381, 16385, 32771, 65521, 65535, 65537};
constexpr std::size_t kHuge[] = {131'071, 262'147, 524'289, 1'048'573};

class Dice {
 public:
  explicit Dice(std::uint64_t seed) : engine_(seed) {}
  std::size_t below(std::size_t limit) { return static_cast<std::size_t>(engine_() % limit); }
  bool one_in(std::size_t chances) { return below(chances) == 0; }
  template <typename T, std::size_t kCount>
  T of(T const (&choices)[kCount]) {
    return choices[below(kCount)];
  }
  std::uint64_t bits() { return engine_(); }
  std::mt19937_64& engine() { return engine_; }

 private:
  std::mt19937_64 engine_;
};

std::size_t roll_count(Dice& dice, std::size_t ranks) {
  auto const size = dice.below(1000);
  if (size < 450) return dice.of(kTiny);
  if (size < 700) return dice.of(kSmall);
  if (size < 900) return dice.of(kMiddle);
  if (size < 990) return dice.of(kLarge) / ranks;
  return dice.of(kHuge) / ranks;  // every rank checks all contributions
}

void roll_reduction(Dice& dice, Case& one) {
  auto const partial = one.kind == Kind::scan || one.kind == Kind::exscan;
  do {
    one.op = static_cast<ReduceOp>(dice.below(static_cast<std::size_t>(ReduceOp::user) + 1));
  } while (!supports(one.dtype, one.op) || (partial && one.op == ReduceOp::avg));
  if (one.op == ReduceOp::user) one.user_bytes = dice.one_in(2) ? 8 : 24;
}

/// Elements that must stay together, so that parts are whole numbers of a user's elements.
std::size_t lump(Case const& one) {
  auto const size = size_of(one.dtype);
  return one.user_bytes == 0 ? 1 : std::lcm(one.user_bytes, size) / size;
}

Counts roll_parts(Dice& dice, Case const& one) {
  Counts parts(static_cast<std::size_t>(one.ranks));
  for (auto& part : parts) {
    part = dice.one_in(4) ? 0 : dice.below(one.count + 1);
    part = part / lump(one) * lump(one);
  }
  return parts;
}

template <std::size_t kBytes>
void compose_elements(void* accumulator, void const* next, std::size_t count, void* /*context*/) {
  compose_maps(accumulator, next, count * kBytes);
}

}  // namespace

void compose_maps(void* accumulator, void const* next, std::size_t bytes) {
  std::uint32_t first[2];
  std::uint32_t then[2];
  for (std::size_t i = 0; i < bytes; i += sizeof first) {  // aligned for the buffer's type only, which may be a byte's
    std::memcpy(first, static_cast<std::byte*>(accumulator) + i, sizeof first);
    std::memcpy(then, static_cast<std::byte const*>(next) + i, sizeof then);
    first[1] = then[0] * first[1] + then[1];
    first[0] *= then[0];
    std::memcpy(static_cast<std::byte*>(accumulator) + i, first, sizeof first);
  }
}

Reduction Case::how(int rank) const {
  if (op == ReduceOp::user && user_bytes == 8) return Reduction::user(compose_elements<8>, nullptr, 8, "one map");
  if (op == ReduceOp::user) return Reduction::user(compose_elements<24>, nullptr, 24, "three maps");
  if (op == ReduceOp::premul_sum) return Reduction::premul_sum(scales()[static_cast<std::size_t>(rank)]);
  return op;
}

std::vector<double> Case::scales() const {
  Dice dice(seed + 1);
  std::vector<double> result(static_cast<std::size_t>(ranks), 1.0);
  if (op != ReduceOp::premul_sum) return result;
  for (auto& scale : result) {
    auto const whole = static_cast<double>(dice.below(101)) - (is_signed(dtype) ? 50 : 0);
    scale = is_integer(dtype) || values == Values::whole ? whole : whole / 24;
  }
  return result;
}

std::string Case::describe() const {
  auto text = fmt::format("{} of {} × {}", kKindNames[static_cast<int>(kind)], count, to_string(dtype));
  if (reduces(kind)) text += fmt::format(", {}", to_string(op));
  if (user_bytes > 0) text += fmt::format(" of {} bytes", user_bytes);
  text += fmt::format(", {} ranks, root {}", ranks, root);
  if (in_place) text += ", in place";
  if (!matrix.empty()) text += fmt::format(", parts {}{}", fmt::join(matrix[0], " "), gaps ? " apart" : "");
  return text + fmt::format(", {}, {}", kMemoryNames[static_cast<int>(memory)], kValuesNames[static_cast<int>(values)]);
}

namespace {

/// What remains to be chosen once it is known what is called.
void roll_shape(Dice& dice, Case& one) {
  one.count = roll_count(dice, static_cast<std::size_t>(one.ranks)) / lump(one) * lump(one);
  one.in_place = dice.one_in(3) && one.kind < Kind::send_recv && one.kind != Kind::all_to_all_v;
  bool const unequal = one.kind == Kind::reduce_scatter_v || one.kind == Kind::all_gather_v ||
                       one.kind == Kind::gather_v || one.kind == Kind::scatter_v || one.kind == Kind::all_to_all_v;
  for (int row = 0; unequal && row < one.ranks; ++row) one.matrix.push_back(roll_parts(dice, one));
  one.gaps = unequal && dice.one_in(2);
  one.receivers.resize(static_cast<std::size_t>(one.ranks));
  std::iota(one.receivers.begin(), one.receivers.end(), 0);
  std::shuffle(one.receivers.begin(), one.receivers.end(), dice.engine());
  one.values = static_cast<Values>(dice.below(3));
  one.memory = static_cast<Memory>(dice.one_in(20) ? kMemories - 1 : dice.below(kMemories - 1));
  one.seed = dice.bits();
}

}  // namespace

Case make_case(std::uint64_t seed, std::uint64_t number, int ranks) {
  Dice dice(seed * 0x9e3779b97f4a7c15U + number);
  Case one;
  one.ranks = ranks;
  one.kind = static_cast<Kind>(dice.below(kKinds));
  one.dtype = dice.of(kAllTypes);
  if (reduces(one.kind)) roll_reduction(dice, one);
  one.root = static_cast<int>(dice.below(static_cast<std::size_t>(ranks)));
  roll_shape(dice, one);
  return one;
}

Case make_similar_case(std::uint64_t seed, std::uint64_t number, Case const& like) {
  Dice dice(seed * 0x9e3779b97f4a7c15U + number);
  Case one;
  one.ranks = like.ranks;
  one.kind = like.kind;
  one.dtype = like.dtype;
  one.op = like.op;
  one.user_bytes = like.user_bytes;
  one.root = like.root;
  roll_shape(dice, one);
  return one;
}

}  // namespace weft::test
