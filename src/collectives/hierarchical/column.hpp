#pragma once

#include <vector>

#include "transport/transport.hpp"

namespace weft::hierarchical {

/// One rank of every host, in the order of the hosts, as a Transport of their own. It uses the messages of `all`: since
/// each pair of ranks begins its messages in the same order, they cannot be mistaken for others of `all`.
class Column final : public Transport {
 public:
  /// `members`: their ranks in `all`; `rank`: the place of this rank among them.
  Column(Transport& all, std::vector<int> members, int rank) : all_(all), members_(std::move(members)), rank_(rank) {}

  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int size() const noexcept override { return static_cast<int>(members_.size()); }
  [[nodiscard]] Request start_send(int to, std::span<std::byte const> bytes) override {
    return all_.start_send(member(to), bytes);
  }
  [[nodiscard]] Request start_recv(int from, std::span<std::byte> bytes) override {
    return all_.start_recv(member(from), bytes);
  }
  void wait(Request& request) override { all_.wait(request); }
  void fail(ErrorCode code, std::string const& message) noexcept override { all_.fail(code, message); }
  void reduced(std::size_t bytes) override { all_.reduced(bytes); }
  [[nodiscard]] std::byte* phantom() const noexcept override { return all_.phantom(); }

 private:
  [[nodiscard]] int member(int index) const { return members_.at(static_cast<std::size_t>(index)); }

  Transport& all_;
  std::vector<int> members_;
  int rank_;
};

}  // namespace weft::hierarchical
