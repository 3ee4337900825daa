#include "collectives/shm/peer_heaps.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bitset>
#include <cerrno>
#include <cstring>
#include <utility>

#include "collectives/shm/fd_passing.hpp"
#include "collectives/shm/process_identity.hpp"
#include "collectives/shm/shared_heap_impl.hpp"
#include "core/describe_errno.hpp"

namespace weft::shm {
namespace {

using Ranks = std::bitset<kMaxRanks>;

/// What a rank tells the others about its heap. Plain bytes: ranks may be of different processes.
struct HeapOffer {
  ProcessIdentity process;
  std::int64_t descriptor = -1;  ///< -1: it has no heap, or a forked parent's
  std::uint64_t nonce = 0;
  std::uint64_t bytes = 0;
  std::shared_ptr<Mapping> const* mapping = nullptr;  // valid in its process until the ranks have met again
};

/// What a rank tells about mapping the others' heaps.
struct HeapReport {
  Ranks forbidden;  ///< whose descriptors it may not open by itself
  int failed = -1;  ///< whose heap it cannot map
  int error_number = 0;
};

HeapOffer make_offer(SharedHeap* own) {
  HeapOffer offer;
  offer.process = this_process();
  if (own == nullptr || !own->impl().is_shared()) return offer;
  auto const& heap = own->impl();
  offer.descriptor = heap.descriptor();
  offer.nonce = heap.nonce();
  offer.bytes = heap.mapping()->bytes();
  offer.mapping = &heap.mapping();
  return offer;
}

bool is_forbidden(int error_number) noexcept {
  return error_number == EACCES || error_number == EPERM || error_number == ENOENT;
}

/// Maps heaps, one rank's at a time, and notes which could not be mapped.
class Joining {
 public:
  Joining(int rank, SharedHeap::Impl& own, std::vector<HeapOffer> const& offers)
      : rank_(rank), own_(own), offers_(offers), mappings_(offers.size()) {}

  void find(int peer) {
    auto const& offer = offers_[static_cast<std::size_t>(peer)];
    auto const& mine = offers_[static_cast<std::size_t>(rank_)];
    auto& mapping = mappings_[static_cast<std::size_t>(peer)];
    if (offer.process == mine.process) {
      mapping = *offer.mapping;
      return;
    }
    if ((mapping = own_.known_peer(offer.nonce))) return;
    int error_number = 0;
    auto const fd = open_descriptor(offer.process.pid, static_cast<int>(offer.descriptor), error_number);
    if (fd.get() >= 0) map(peer, fd.get(), error_number);
    if (is_forbidden(error_number))
      report_.forbidden.set(static_cast<std::size_t>(peer));
    else
      note(peer, error_number);
  }

  /// Receives the descriptor itself from `peer`, which is listening.
  void receive(int peer) {
    int error_number = 0;
    UniqueFd const fd{receive_descriptor(offers_[static_cast<std::size_t>(peer)].nonce, error_number)};
    if (fd.get() >= 0) map(peer, fd.get(), error_number);
    note(peer, error_number);
  }

  void note(int peer, int error_number) {
    if (error_number == 0 || report_.failed >= 0) return;
    report_.failed = peer;
    report_.error_number = error_number;
  }

  [[nodiscard]] HeapReport const& report() const noexcept { return report_; }
  [[nodiscard]] std::vector<std::shared_ptr<Mapping>>& mappings() noexcept { return mappings_; }

 private:
  void map(int peer, int fd, int& error_number) {
    auto const& offer = offers_[static_cast<std::size_t>(peer)];
    struct stat file {};
    // Another file may have taken the descriptor's place, in a process that took over the peer's pid.
    if (::fstat(fd, &file) != 0 || static_cast<std::uint64_t>(file.st_size) != offer.bytes) {
      error_number = ENOENT;
      return;
    }
    auto mapping = map_shared(fd, offer.bytes, error_number);
    if (!mapping) return;
    if (std::memcmp(mapping->data(), &offer.nonce, sizeof offer.nonce) != 0) {
      error_number = ENOENT;
      return;
    }
    own_.remember_peer(offer.nonce, mapping);
    mappings_[static_cast<std::size_t>(peer)] = std::move(mapping);
  }

  int rank_;
  SharedHeap::Impl& own_;
  std::vector<HeapOffer> const& offers_;
  std::vector<std::shared_ptr<Mapping>> mappings_;
  HeapReport report_;
};

/// Ranks that may not look into one another's /proc send each other their descriptors.
void pass_descriptors(int rank, SharedHeap::Impl const& own, std::vector<HeapReport> const& reports, Joining& joining,
                      Exchange const& exchange) {
  for (std::size_t giver = 0; giver < reports.size(); ++giver) {
    auto const needs = [giver](HeapReport const& report) { return report.forbidden.test(giver); };
    auto const receivers = static_cast<int>(std::count_if(reports.begin(), reports.end(), needs));
    if (receivers == 0) continue;
    auto const listening = [&] { gather(exchange, rank); };
    if (rank == static_cast<int>(giver)) {
      joining.note(rank, send_descriptor(own.descriptor(), own.nonce(), receivers, listening));
    } else {
      listening();
      if (needs(reports[static_cast<std::size_t>(rank)])) joining.receive(static_cast<int>(giver));
    }
  }
}

}  // namespace

PeerHeaps PeerHeaps::join(int rank, int size, std::shared_ptr<SharedHeap> const& own, Exchange const& exchange) {
  PeerHeaps heaps;
  auto const offers = gather(exchange, make_offer(own.get()));
  auto const lacks = [](HeapOffer const& offer) { return offer.descriptor < 0; };
  auto const without = std::find_if(offers.begin(), offers.end(), lacks);
  if (std::all_of(offers.begin(), offers.end(), lacks)) return heaps;
  if (without != offers.end()) {
    heaps.missing_rank_ = static_cast<int>(without - offers.begin());
    heaps.missing_ = fmt::format("rank {} has no shared heap", heaps.missing_rank_);
    return heaps;
  }

  Joining joining(rank, own->impl(), offers);
  for (int peer = 0; peer < size; ++peer) joining.find(peer);
  auto reports = gather(exchange, joining.report());
  if (std::any_of(reports.begin(), reports.end(), [](HeapReport const& report) { return report.forbidden.any(); })) {
    pass_descriptors(rank, own->impl(), reports, joining, exchange);
    reports = gather(exchange, joining.report());
  }
  auto const bad = std::find_if(reports.begin(), reports.end(), [](HeapReport const& one) { return one.failed >= 0; });
  if (bad != reports.end()) {
    heaps.missing_rank_ = static_cast<int>(bad - reports.begin());
    heaps.missing_ = fmt::format("rank {} cannot map the shared heap of rank {}: {}", heaps.missing_rank_, bad->failed,
                                 describe_errno(bad->error_number));
    return heaps;
  }
  heaps.mappings_ = std::move(joining.mappings());
  for (int peer = 0; peer < size; ++peer) heaps.begins_[peer] = heaps.mappings_[peer]->data();
  heaps.own_begin_ = heaps.begins_[rank];
  heaps.own_end_ = heaps.own_begin_ + heaps.mappings_[rank]->bytes();
  return heaps;
}

}  // namespace weft::shm
