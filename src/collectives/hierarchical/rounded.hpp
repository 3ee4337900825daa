#pragma once

#include <cstddef>
#include <vector>

#include "collectives/hierarchical/hierarchical_backend.hpp"
#include "collectives/hierarchical/inner_call.hpp"
#include "collectives/hierarchical/wire_state.hpp"
#include "kernels/cpu/wire.hpp"

namespace weft::hierarchical {

/// A sum or average of f32 whose contributions and results cross hosts in another format (weft/wire_format.hpp), block
/// by block: the ranks of a host combine their contributions, partial results of each part come together at its rank,
/// rounded, one from every host; and where all are to have the results, these go back the same way, rounded once more.
/// A host's own partial results are rounded too, so that bits do not depend on which rank has which part.
class HierarchicalBackend::Rounded {
 public:
  Rounded(HierarchicalBackend& backend, Call const& call, Ranges const& parts);

  /// result = op over r of parts[rank] of rank r's `send`; may be in place.
  void reduce(void const* send, float* result) { run(send, result, nullptr); }
  /// All parts of `recv`, on every rank; may be in place.
  void all_reduce(void const* send, float* recv);

 private:
  /// `all`: where all parts go; null: nowhere.
  void run(void const* send, float* result, float* all);
  void pack(float const* values, float* residual, std::byte* wire, std::size_t count);
  void unpack(std::byte const* wire, float* values, std::size_t count);
  void pack_contributions(std::size_t first);
  void exchange_contributions(std::size_t first);
  void combine(std::size_t first, float* result);
  void share(std::size_t first, float* result, float* all);
  [[nodiscard]] std::size_t left(int owner, std::size_t first) const noexcept;
  [[nodiscard]] std::size_t wire_bytes(std::size_t count) const noexcept {
    return kernels::wire_bytes(backend_.wire_, count);
  }
  [[nodiscard]] Range const& mine() const noexcept { return parts_[static_cast<std::size_t>(backend_.rank())]; }
  [[nodiscard]] HostLayout const& layout() const noexcept { return backend_.layout_; }
  /// Whose part this rank takes in a round of layout().rounds(); a negative number: nobody's.
  [[nodiscard]] int owner_in(std::span<int const> round) const noexcept;

  HierarchicalBackend& backend_;
  Call const& call_;
  Call as_bytes_;  // the same about bytes, for what crosses
  Ranges const& parts_;
  WireFeedback::State* feedback_ = nullptr;
  HostOrder order_;
  std::size_t longest_ = 0;
  std::size_t block_ = 0;       // elements
  std::size_t wire_block_ = 0;  // bytes that they take
  Buffer partials_;             // of this rank, a block for each round
  Buffer outgoing_;             // the same as they cross, and a block of results
  Buffer arrived_;              // a block for each host, or for each part that this rank brings in
  Buffer contributions_;        // a block for each host
};

}  // namespace weft::hierarchical
