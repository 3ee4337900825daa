#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>

#include "collectives/shm/tuning.hpp"

namespace weft::shm {

/// How a collective's data moves. The files of the operations say what each means there.
enum class Algorithm : std::uint8_t {
  swapped,         ///< two ranks, through blocks that change hands
  staged,          ///< through the staging rings, chunk by chunk
  one_phase,       ///< staged; every rank combines everything
  two_phase,       ///< staged; each combines a part, then all copy all parts
  claimed,         ///< staged; whichever rank runs combines the next chunk, then all copy
  direct,          ///< in one another's symmetric memory
  direct_claimed,  ///< the same, chunk by chunk by whichever rank runs
  fed,             ///< through the givers' feeds; a rank that only gives does not wait for the others
  fetched,         ///< out of one another's private memory, or into it, by the kernel
  two_level,       ///< staged; one rank of each group fetches, the others of its group copy from it
};
inline constexpr std::size_t kAlgorithms = 10;
[[nodiscard]] std::string_view to_string(Algorithm algorithm) noexcept;

/// Whether ranks work in one another's buffers.
[[nodiscard]] constexpr bool is_direct(Algorithm algorithm) noexcept {
  return algorithm == Algorithm::direct || algorithm == Algorithm::direct_claimed;
}

/// Operations that share their choices. `pull` is all_to_all, and gather, scatter and all_to_all with unequal parts.
enum class Collective : std::uint8_t {
  all_reduce,
  reduce_scatter,
  all_gather,
  broadcast,
  reduce,
  gather,
  scatter,
  pull,
  scan
};
inline constexpr std::size_t kCollectives = 9;
/// Those whose ranks may work in one another's buffers.
inline constexpr std::array kDirect{
    Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather, Collective::broadcast,
    Collective::reduce,     Collective::gather,         Collective::scatter,    Collective::pull};
/// Those that may use Algorithm::fetched.
inline constexpr std::array kFetching{Collective::broadcast, Collective::gather, Collective::scatter, Collective::pull,
                                      Collective::all_gather};
[[nodiscard]] std::string_view to_string(Collective collective) noexcept;

/// What is decided for calls of up to `up_to` bytes.
struct Choice {
  static constexpr std::size_t kUnlimited = std::numeric_limits<std::size_t>::max();

  std::size_t up_to = 0;
  std::size_t chunk_bytes = 0;  ///< what a rank stages, or claims, at once
  Algorithm algorithm = Algorithm::staged;

  friend bool operator==(Choice const&, Choice const&) = default;
};

/// Choices in ascending order of their sizes; unused ones are for calls of up to 0 bytes.
using Choices = std::array<Choice, 3>;

/// Where the buffers of a call lie, which decides the choices that it has.
enum class Memory : std::uint8_t {
  any,        ///< whatever memory: calls so small that it does not matter
  symmetric,  ///< every rank's buffers can be reached by all
  in_place,   ///< the same, and every rank receives where it sends: lines that were read are written, where both matter
  other,      ///< some rank's buffers cannot be reached
};
[[nodiscard]] std::string_view to_string(Memory memory) noexcept;

/// Which choices a collective has. Bytes are those of a rank's whole buffer: of all parts where there are parts.
struct Rules {
  Choices small;  ///< in any memory; ranks of larger calls first find out where buffers lie
  Choices symmetric;
  Choices in_place{};
  Choices other;

  [[nodiscard]] Choices const& in(Memory memory) const noexcept {
    switch (memory) {
      case Memory::any: return small;
      case Memory::symmetric: return symmetric;
      case Memory::in_place: return in_place;
      case Memory::other: return other;
    }
    return other;
  }

  friend bool operator==(Rules const&, Rules const&) = default;
};

/// The table of choices for one communicator, equal on all its ranks. Payloads that fit an announcement never ask it.
class Selector {
 public:
  Selector() = default;

  /// The choices that follow from caches and cores alone.
  [[nodiscard]] static Selector derive(Tuning const& tuning, int ranks);
  [[nodiscard]] Rules const& rules(Collective collective) const noexcept {
    return rules_[static_cast<std::size_t>(collective)];
  }
  [[nodiscard]] Rules& rules(Collective collective) noexcept { return rules_[static_cast<std::size_t>(collective)]; }

  /// The choice that depends on the size alone; null when the memory matters.
  [[nodiscard]] Choice const* by_size(Collective collective, std::size_t bytes) const noexcept {
    for (auto const& choice : rules(collective).small) {
      if (bytes <= choice.up_to) return &choice;
    }
    return nullptr;
  }
  [[nodiscard]] Choice const& by_memory(Collective collective, std::size_t bytes, Memory memory) const noexcept {
    auto const& choices = rules(collective).in(memory);
    std::size_t index = 0;
    while (bytes > choices[index].up_to) ++index;  // the last one that is used has no limit
    return choices[index];
  }

  /// Bytes above which `choice`, one of those in `memory`, is taken.
  [[nodiscard]] std::size_t above(Collective collective, Memory memory, Choice const& choice) const noexcept;

  /// Bytes up to which calls in symmetric memory, out of place, are staged or fed although buffers could be reached.
  [[nodiscard]] std::size_t staged_up_to(Collective collective) const noexcept {
    return above(collective, Memory::symmetric, by_memory(collective, Choice::kUnlimited, Memory::symmetric));
  }

  friend bool operator==(Selector const&, Selector const&) = default;

 private:
  std::array<Rules, kCollectives> rules_{};
};

}  // namespace weft::shm
