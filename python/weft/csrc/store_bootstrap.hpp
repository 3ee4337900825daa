#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "weft/bootstrap.hpp"

namespace weft::torch_backend {

/// The bootstrap of a torch.distributed group, whose ranks find one another through its key-value store. Keys are
/// numbered, and deleted by the rank that reads them last, so that groups made one after the other do not fill the
/// store.
class StoreBootstrap final : public Bootstrap {
 public:
  /// `store`: no other group may use it (torch gives each group its own prefix). `group`: the group's name in errors;
  /// may be empty.
  StoreBootstrap(c10::intrusive_ptr<c10d::Store> store, int rank, int size, std::chrono::milliseconds timeout,
                 std::string group);

  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int size() const noexcept override { return size_; }
  [[nodiscard]] std::string name() const override { return "torch"; }
  [[nodiscard]] std::vector<std::byte> all_gather(std::span<std::byte const> mine) override;
  [[nodiscard]] std::shared_ptr<MpiMembers const> mpi() const override { return mpi_; }
  [[nodiscard]] std::shared_ptr<MpiMembers const> join_mpi() override;

 private:
  [[nodiscard]] std::string key(int rank) const;
  void wait_for_all(std::vector<std::string> const& keys);

  c10::intrusive_ptr<c10d::Store> store_;
  int const rank_;
  int const size_;
  std::chrono::milliseconds const timeout_;
  std::string const group_;
  std::uint64_t round_ = 0;
  std::shared_ptr<MpiMembers const> mpi_;
};

}  // namespace weft::torch_backend
