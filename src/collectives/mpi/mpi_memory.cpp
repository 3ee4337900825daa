#include "collectives/mpi/mpi_memory.hpp"

#include <algorithm>
#include <numeric>

namespace weft::mpi {
namespace {

constexpr std::size_t kSlots = 2;

}  // namespace

MpiMemory::MpiMemory(MPI_Comm communicator, int ranks, std::size_t block)
    : handle(communicator),
      slots(kSlots),
      all(static_cast<std::size_t>(ranks)),
      notices(static_cast<std::size_t>(ranks)),
      storage_(Buffer::host(2 * kSlots * block * static_cast<std::size_t>(ranks), DataType::u8)),
      notices_sent_(static_cast<std::size_t>(ranks)) {
  auto const n = static_cast<std::size_t>(ranks);
  auto* next = static_cast<std::byte*>(storage_.data());
  for (auto& slot : slots) {
    slot.send = next;
    slot.recv = next + block * n;
    next += 2 * block * n;
    for (auto* counts : {&slot.send_counts, &slot.recv_counts}) counts->assign(n, 0);
    for (auto* offsets : {&slot.send_offsets, &slot.recv_offsets}) {
      for (std::size_t rank = 0; rank < n; ++rank) offsets->push_back(static_cast<int>(rank * block));
    }
  }
  listen();
}

void MpiMemory::listen() {
  check_mpi(MPI_Irecv(&incoming_, sizeof incoming_, MPI_BYTE, MPI_ANY_SOURCE, kNoticeTag, handle, &listening_),
            "MPI_Irecv");
}

void MpiMemory::send_notice(Notice const& notice, int to) {
  auto& sent = outgoing_.emplace_back(Outgoing{notice});
  ++notices_sent_[static_cast<std::size_t>(to)];
  check_mpi(MPI_Isend(&sent.notice, sizeof sent.notice, MPI_BYTE, to, kNoticeTag, handle, &sent.request), "MPI_Isend");
}

void MpiMemory::send_notice_to_all(Notice const& notice, int rank) {
  for (int peer = 0; peer < static_cast<int>(all.size()); ++peer) {
    if (peer != rank) send_notice(notice, peer);
  }
}

bool MpiMemory::take_notice(Notice& notice, int& from) {
  std::erase_if(outgoing_, [](Outgoing& sent) {
    int done = 0;
    MPI_Test(&sent.request, &done, MPI_STATUS_IGNORE);
    return done != 0;
  });
  int done = 0;
  MPI_Status status;
  check_mpi(MPI_Test(&listening_, &done, &status), "MPI_Test");
  if (done == 0) return false;
  notice = incoming_;
  from = status.MPI_SOURCE;
  ++notices_taken_;
  listen();
  return true;
}

void MpiMemory::depart(std::uint64_t sequence, int rank) {
  Notice notice;
  notice.kind = Notice::Kind::left;
  notice.sequence = sequence;
  send_notice_to_all(notice, rank);
  mine = {};
  check_mpi(MPI_Iallgather(&mine, sizeof mine, MPI_BYTE, all.data(), sizeof mine, MPI_BYTE, handle, &departure_[0]),
            "MPI_Iallgather");
  check_mpi(MPI_Ialltoall(notices_sent_.data(), sizeof(std::uint64_t), MPI_BYTE, notices.data(), sizeof(std::uint64_t),
                          MPI_BYTE, handle, &departure_[1]),
            "MPI_Ialltoall");
}

bool MpiMemory::everybody_left() const noexcept {
  return std::all_of(all.begin(), all.end(), [](Announcement const& one) { return one.sequence == 0; });
}

bool MpiMemory::all_notices_in() noexcept {
  auto const sent = std::accumulate(notices.begin(), notices.end(), std::uint64_t{0});
  try {
    Notice notice;
    int from = 0;
    while (notices_taken_ < sent && take_notice(notice, from)) {
    }
  } catch (Error const&) {  // the communicator's owner is gone, so nobody is to be told
    failed = true;
  }
  return notices_taken_ == sent && outgoing_.empty();
}

bool MpiMemory::settled() noexcept {
  if (failed) return false;
  int done = 0;
  if (MPI_Test(&departure_[0], &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) failed = true;
  if (failed || done == 0) return false;
  // A rank made a call that this one took no part in: that call's messages may still come at any time.
  if (!everybody_left()) failed = true;
  if (failed) return false;
  if (MPI_Test(&departure_[1], &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) failed = true;
  if (failed || done == 0 || !all_notices_in()) return false;
  MPI_Cancel(&listening_);
  MPI_Wait(&listening_, MPI_STATUS_IGNORE);
  MPI_Comm_free(&handle);
  return true;
}

}  // namespace weft::mpi
