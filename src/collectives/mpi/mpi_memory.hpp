#pragma once

#include <mpi.h>

#include <array>
#include <list>
#include <memory>
#include <vector>

#include "collectives/mpi/announcement.hpp"
#include "core/mpi_session.hpp"
#include "weft/buffer.hpp"
#include "weft/error.hpp"

namespace weft::mpi {

inline constexpr int kNoticeTag = 0;  ///< the tags above it are for messages

/// The send and receive memory of one MPI call in flight: a block for every rank; the blocks start `block` bytes apart.
struct Slot {
  std::byte* send = nullptr;
  std::byte* recv = nullptr;
  std::vector<int> send_counts, send_offsets, recv_counts, recv_offsets;  ///< bytes; MPI reads them while it works
};

/// All memory of a communicator that MPI may read or write, in one place. A collective that was started cannot be taken
/// back from MPI. So after a failure, or when a rank leaves before the others, this memory outlives the communicator,
/// and MPI must never work on callers' buffers.
class MpiMemory final : public MpiRemains {
 public:
  /// `block`: bytes per rank in a slot. Takes over `handle`. @throws Error{out_of_memory}
  MpiMemory(MPI_Comm handle, int ranks, std::size_t block);

  /// Starts to tell the others that this rank makes no call after `sequence`.
  void depart(std::uint64_t sequence, int rank);
  /// Marks that MPI may use this memory for good: settled() never becomes true.
  void give_up() noexcept { failed = true; }
  [[nodiscard]] bool settled() noexcept override;

  /// Sends a notice to every other rank, or to one.
  void send_notice_to_all(Notice const& notice, int rank);
  void send_notice(Notice const& notice, int to);
  /// Keeps memory that an abandoned message may still use.
  void keep(std::shared_ptr<void> memory) { kept_.push_back(std::move(memory)); }
  /// Takes a notice that has arrived, if any.
  [[nodiscard]] bool take_notice(Notice& notice, int& from);
  /// Whether MPI had sent all of this rank's notices at the last take_notice().
  [[nodiscard]] bool notices_sent() const noexcept { return outgoing_.empty(); }

  MPI_Comm handle;
  std::vector<Slot> slots;
  Announcement mine;
  std::vector<Announcement> all;
  std::vector<std::uint64_t> notices;  ///< number of notices that each rank sent this one; known once all have left
  bool failed = false;

 private:
  struct Outgoing {
    Notice notice;
    MPI_Request request = MPI_REQUEST_NULL;
  };

  [[nodiscard]] bool everybody_left() const noexcept;
  [[nodiscard]] bool all_notices_in() noexcept;
  void listen();

  Buffer storage_;
  std::vector<std::shared_ptr<void>> kept_;
  std::array<MPI_Request, 2> departure_{MPI_REQUEST_NULL, MPI_REQUEST_NULL};
  Notice incoming_;
  MPI_Request listening_ = MPI_REQUEST_NULL;
  std::list<Outgoing> outgoing_;             // stable addresses
  std::vector<std::uint64_t> notices_sent_;  // number, to each rank
  std::uint64_t notices_taken_ = 0;
};

}  // namespace weft::mpi
