#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "weft/communicator.hpp"

namespace weft {

/// Some of a communicator's ranks as a bootstrap, for the communicators split from it. It uses point-to-point messages
/// only, so the other ranks take no part. The parent must outlive it.
class SubsetBootstrap final : public Bootstrap {
 public:
  /// `members`: their ranks in the parent, in the order of their new ranks; this rank is among them. `rank`: this one's
  /// new rank. `mpi`: their MPI processes, where MPI started them; else null.
  SubsetBootstrap(Communicator& parent, std::vector<int> members, int rank, std::shared_ptr<MpiMembers const> mpi)
      : parent_(parent), members_(std::move(members)), rank_(rank), mpi_(std::move(mpi)) {}

  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int size() const noexcept override { return static_cast<int>(members_.size()); }
  [[nodiscard]] std::string name() const override { return "split"; }
  [[nodiscard]] std::shared_ptr<MpiMembers const> mpi() const override { return mpi_; }

  [[nodiscard]] std::vector<std::byte> all_gather(std::span<std::byte const> mine) override {
    auto const bytes = mine.size();
    std::vector<std::byte> all(bytes * members_.size());
    auto const part = [&](int rank) { return all.data() + static_cast<std::size_t>(rank) * bytes; };
    std::copy(mine.begin(), mine.end(), part(rank_));
    for (int step = 1; step < size(); ++step) {
      auto const to = (rank_ + step) % size();
      auto const from = (rank_ + size() - step) % size();
      parent_.send_recv({mine.data(), bytes, DataType::u8}, members_[static_cast<std::size_t>(to)],
                        {part(from), bytes, DataType::u8}, members_[static_cast<std::size_t>(from)]);
    }
    return all;
  }

 private:
  Communicator& parent_;
  std::vector<int> members_;
  int rank_;
  std::shared_ptr<MpiMembers const> mpi_;
};

}  // namespace weft
