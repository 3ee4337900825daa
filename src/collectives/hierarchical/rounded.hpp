#pragma once

#include <cstddef>
#include <vector>

#include "collectives/hierarchical/hierarchical_backend.hpp"
#include "collectives/hierarchical/inner_call.hpp"
#include "collectives/hierarchical/wire_state.hpp"
#include "kernels/cpu/wire.hpp"

namespace weft::hierarchical {

/// A sum or average of f32 whose contributions and results cross hosts in another format (weft/wire_format.hpp).
///
/// It goes block by block. The ranks of a host combine their contributions. The partial results of each part, one from
/// every host, are rounded and come together at the part's rank. Where all ranks are to have the results, these are
/// rounded once more and go back the same way. A host's own partial results are rounded too, so that the bits do not
/// depend on which rank has which part.
class HierarchicalBackend::Rounded {
 public:
  Rounded(HierarchicalBackend& backend, Call const& call, Ranges const& parts);

  /// result = the reduction, over all ranks r, of this rank's part of rank r's `send`; may be in place.
  void reduce(void const* send, float* result) { run(send, result, nullptr); }
  /// Brings the results of all parts to `recv`, on every rank; may be in place.
  void all_reduce(void const* send, float* recv);

 private:
  /// `all`: where the results of all parts go; null: each rank keeps only its own part.
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
  /// The rank whose part this rank handles in a round of layout().rounds(); negative: none.
  [[nodiscard]] int owner_in(std::span<int const> round) const noexcept;

  HierarchicalBackend& backend_;
  Call const& call_;
  Call as_bytes_;  // the same call in bytes, for what crosses hosts
  Ranges const& parts_;
  WireFeedback::State* feedback_ = nullptr;
  HostOrder order_;
  std::size_t longest_ = 0;
  std::size_t block_ = 0;       // elements
  std::size_t wire_block_ = 0;  // bytes of a block in the wire format
  Buffer partials_;             // this rank's partial results, a block for each round
  Buffer outgoing_;             // the same in the wire format; later a block of results
  Buffer arrived_;              // what came: a block for each host; later for each part that this rank brings in
  Buffer contributions_;        // the hosts' partial results after unpacking, a block for each host
};

}  // namespace weft::hierarchical
