#include "checkpoint/xxh64.hpp"

#include <array>
#include <bit>
#include <cstring>

namespace weft {
namespace {

constexpr std::uint64_t kPrime1 = 0x9E3779B185EBCA87U;
constexpr std::uint64_t kPrime2 = 0xC2B2AE3D27D4EB4FU;
constexpr std::uint64_t kPrime3 = 0x165667B19E3779F9U;
constexpr std::uint64_t kPrime4 = 0x85EBCA77C2B2AE63U;
constexpr std::uint64_t kPrime5 = 0x27D4EB2F165667C5U;

static_assert(std::endian::native == std::endian::little, "words are read as they lie");

template <typename Word>
Word load(std::byte const* from) noexcept {
  Word word = 0;
  std::memcpy(&word, from, sizeof word);
  return word;
}

constexpr std::uint64_t mix(std::uint64_t lane, std::uint64_t input) noexcept {
  return std::rotl(lane + input * kPrime2, 31) * kPrime1;
}

// Whole stripes of 32 bytes, in four independent lanes.
std::uint64_t consume_stripes(std::byte const*& at, std::byte const* end) noexcept {
  std::array<std::uint64_t, 4> lanes{kPrime1 + kPrime2, kPrime2, 0, std::uint64_t{0} - kPrime1};
  for (; end - at >= 32; at += 32) {
    for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
      lanes[lane] = mix(lanes[lane], load<std::uint64_t>(at + 8 * lane));
    }
  }
  std::uint64_t hash =
      std::rotl(lanes[0], 1) + std::rotl(lanes[1], 7) + std::rotl(lanes[2], 12) + std::rotl(lanes[3], 18);
  for (std::uint64_t const lane : lanes) hash = (hash ^ mix(0, lane)) * kPrime1 + kPrime4;
  return hash;
}

}  // namespace

std::uint64_t xxh64(std::span<std::byte const> data) noexcept {
  std::byte const* at = data.data();
  std::byte const* const end = at + data.size();
  std::uint64_t hash = data.size() >= 32 ? consume_stripes(at, end) : kPrime5;
  hash += data.size();
  for (; end - at >= 8; at += 8) {
    hash = std::rotl(hash ^ mix(0, load<std::uint64_t>(at)), 27) * kPrime1 + kPrime4;
  }
  if (end - at >= 4) {
    hash = std::rotl(hash ^ load<std::uint32_t>(at) * kPrime1, 23) * kPrime2 + kPrime3;
    at += 4;
  }
  for (; at != end; ++at) hash = std::rotl(hash ^ static_cast<std::uint64_t>(*at) * kPrime5, 11) * kPrime1;
  hash = (hash ^ (hash >> 33U)) * kPrime2;
  hash = (hash ^ (hash >> 29U)) * kPrime3;
  return hash ^ (hash >> 32U);
}

}  // namespace weft
