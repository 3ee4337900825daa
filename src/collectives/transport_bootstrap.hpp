#pragma once

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "transport/transport.hpp"
#include "weft/bootstrap.hpp"

namespace weft {

/// Some of a transport's ranks as a bootstrap: a host's ranks make their own back end with it. The transport must
/// outlive it.
class TransportBootstrap final : public Bootstrap {
 public:
  /// `members`: their ranks in the transport, in the order of their new ranks; this rank is among them.
  TransportBootstrap(Transport& transport, std::vector<int> members)
      : transport_(transport), members_(std::move(members)) {
    auto const me = std::find(members_.begin(), members_.end(), transport.rank());
    rank_ = static_cast<int>(me - members_.begin());
  }

  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int size() const noexcept override { return static_cast<int>(members_.size()); }
  [[nodiscard]] std::string name() const override { return "transport"; }

  [[nodiscard]] std::vector<std::byte> all_gather(std::span<std::byte const> mine) override {
    auto const bytes = mine.size();
    std::vector<std::byte> all(bytes * members_.size());
    auto const part = [&](int rank) { return std::span(all).subspan(static_cast<std::size_t>(rank) * bytes, bytes); };
    std::copy(mine.begin(), mine.end(), part(rank_).begin());
    for (int step = 1; step < size(); ++step) {
      auto const to = (rank_ + step) % size();
      auto const from = (rank_ + size() - step) % size();
      transport_.sendrecv(members_[static_cast<std::size_t>(to)], mine, members_[static_cast<std::size_t>(from)],
                          part(from));
    }
    return all;
  }

 private:
  Transport& transport_;
  std::vector<int> members_;
  int rank_ = 0;
};

}  // namespace weft
