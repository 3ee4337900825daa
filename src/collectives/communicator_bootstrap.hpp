#pragma once

#include <memory>
#include <utility>

#include "collectives/call.hpp"
#include "weft/communicator.hpp"

namespace weft {

/// A communicator's ranks as a bootstrap, for the communicators made from it. The communicator must outlive it.
class CommunicatorBootstrap final : public Bootstrap {
 public:
  CommunicatorBootstrap(Communicator& parent, std::shared_ptr<MpiMembers const> mpi) noexcept
      : parent_(parent), mpi_(std::move(mpi)) {}

  [[nodiscard]] int rank() const noexcept override { return parent_.rank(); }
  [[nodiscard]] int size() const noexcept override { return parent_.size(); }
  [[nodiscard]] std::string name() const override { return "communicator"; }
  [[nodiscard]] std::shared_ptr<MpiMembers const> mpi() const override { return mpi_; }

  [[nodiscard]] std::vector<std::byte> all_gather(std::span<std::byte const> mine) override {
    std::vector<std::byte> all(mine.size() * static_cast<std::size_t>(size()));
    parent_.all_gather({mine.data(), mine.size(), DataType::u8}, {all.data(), all.size(), DataType::u8},
                       {.tag = kMakingCommunicator});
    return all;
  }

 private:
  Communicator& parent_;
  std::shared_ptr<MpiMembers const> mpi_;
};

}  // namespace weft
