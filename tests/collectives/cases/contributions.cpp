#include "collectives/cases/contributions.hpp"

#include <cstring>
#include <random>

#include "collectives/cases/element_types.hpp"

namespace weft::test {
namespace {

constexpr std::size_t kChoices = 509;

template <typename T>
T everyday_element(std::mt19937_64& random, bool whole) {
  if constexpr (is_complex_number<T>) {
    auto const real = everyday_element<typename T::value_type>(random, whole);
    return {real, everyday_element<typename T::value_type>(random, whole)};
  } else {
    auto const value = whole ? static_cast<float>(random() % 15) - 7
                             : static_cast<float>(random() % 65536) / 8192 - 4;  // not a binary fraction of few bits
    return narrow<T>(static_cast<Accumulator<T>>(whole ? value : value * 0.999F));
  }
}

template <typename T>
T roll_element(std::mt19937_64& random, Values values) {
  if constexpr (std::is_same_v<T, Boolean>) {
    return random_element<T>(random);
  } else if constexpr (std::is_integral_v<T>) {
    if (values != Values::whole) return random_element<T>(random);
    return static_cast<T>(static_cast<int>(random() % 7) - (std::is_signed_v<T> ? 3 : 0));
  } else {
    return values == Values::special ? random_element<T>(random) : everyday_element<T>(random, values == Values::whole);
  }
}

/// Which of the choices a rank's unit is.
std::size_t choice(std::uint64_t seed, std::size_t unit) noexcept {
  auto hash = (seed + unit) * 0xff51afd7ed558ccdU;
  hash = (hash ^ (hash >> 33U)) * 0xc4ceb9fe1a85ec53U;
  return static_cast<std::size_t>(((hash >> 32U) * kChoices) >> 32U);
}

template <std::size_t kBytes>
void draw(std::byte const* choices, std::uint64_t seed, std::size_t from, std::size_t count, std::byte* to) {
  for (std::size_t i = 0; i < count; ++i)
    std::memcpy(to + i * kBytes, choices + choice(seed, from + i) * kBytes, kBytes);
}

}  // namespace

Contributions::Contributions(Case const& one)
    : seed_(one.seed),
      unit_(one.user_bytes > 0 ? std::min(sizeof(std::uint32_t), size_of(one.dtype)) : size_of(one.dtype)),
      units_per_element_(size_of(one.dtype) / unit_),
      choices_(kChoices * unit_) {
  std::mt19937_64 random(one.seed);
  if (one.user_bytes > 0) {  // any bits are maps
    for (auto& byte : choices_) byte = static_cast<std::byte>(random());
    return;
  }
  with_element(one.dtype, [&](auto zero) {
    for (std::size_t i = 0; i < kChoices; ++i) {
      auto const value = roll_element<decltype(zero)>(random, one.values);
      std::memcpy(choices_.data() + i * unit_, &value, unit_);
    }
  });
}

void Contributions::write(int rank, std::size_t from, std::size_t count, std::byte* to) const {
  auto const seed = seed_ + static_cast<std::uint64_t>(rank + 1) * 0x9e3779b97f4a7c15U;
  auto const first = from * units_per_element_;
  auto const units = count * units_per_element_;
  switch (unit_) {
    case 1: return draw<1>(choices_.data(), seed, first, units, to);
    case 2: return draw<2>(choices_.data(), seed, first, units, to);
    case 4: return draw<4>(choices_.data(), seed, first, units, to);
    case 8: return draw<8>(choices_.data(), seed, first, units, to);
    default: return draw<16>(choices_.data(), seed, first, units, to);
  }
}

std::vector<std::byte> Contributions::read(int rank, std::size_t from, std::size_t count) const {
  std::vector<std::byte> bytes(count * units_per_element_ * unit_);
  write(rank, from, count, bytes.data());
  return bytes;
}

}  // namespace weft::test
