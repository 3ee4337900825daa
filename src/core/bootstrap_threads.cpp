#include <fmt/format.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "weft/bootstrap.hpp"
#include "weft/error.hpp"

namespace weft {
namespace {

/// What the ranks of one thread_bootstraps() call share. Rounds alternate between two sets of parts: a rank writes
/// round k + 2 only after every rank has published round k + 1, and with that has read round k.
struct Meeting {
  explicit Meeting(std::size_t size) : rounds(size), left(size), parts{Parts(size), Parts(size)} {}

  using Parts = std::vector<std::vector<std::byte>>;

  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::uint64_t> rounds;  ///< published by each rank
  std::vector<bool> left;             ///< its Bootstrap was destroyed
  Parts parts[2];
};

class ThreadBootstrap final : public Bootstrap {
 public:
  ThreadBootstrap(std::shared_ptr<Meeting> meeting, int rank, std::chrono::milliseconds timeout)
      : meeting_(std::move(meeting)), rank_(static_cast<std::size_t>(rank)), timeout_(timeout) {}

  ~ThreadBootstrap() override {
    {
      std::lock_guard lock(meeting_->mutex);
      meeting_->left[rank_] = true;
    }
    meeting_->changed.notify_all();
  }

  [[nodiscard]] int rank() const noexcept override { return static_cast<int>(rank_); }
  [[nodiscard]] int size() const noexcept override { return static_cast<int>(meeting_->rounds.size()); }
  [[nodiscard]] std::string name() const override { return "threads"; }

  [[nodiscard]] std::vector<std::byte> all_gather(std::span<std::byte const> mine) override {
    std::unique_lock lock(meeting_->mutex);
    Meeting::Parts& parts = meeting_->parts[round_ % 2];
    parts[rank_].assign(mine.begin(), mine.end());
    meeting_->rounds[rank_] = round_ + 1;
    meeting_->changed.notify_all();

    bool const in_time = meeting_->changed.wait_for(lock, timeout_, [this] { return missing().empty() || any_left(); });
    std::vector<std::size_t> const absent = missing();
    if (!absent.empty()) throw_missing(absent, in_time);
    std::vector<std::byte> all = concatenate(parts, mine.size());
    ++round_;
    return all;
  }

 private:
  [[nodiscard]] std::vector<std::size_t> missing() const {
    std::vector<std::size_t> ranks;
    for (std::size_t peer = 0; peer < meeting_->rounds.size(); ++peer) {
      if (meeting_->rounds[peer] <= round_) ranks.push_back(peer);
    }
    return ranks;
  }

  [[nodiscard]] bool any_left() const {
    for (std::size_t const peer : missing()) {
      if (meeting_->left[peer]) return true;
    }
    return false;
  }

  [[noreturn]] void throw_missing(std::vector<std::size_t> const& absent, bool in_time) const {
    for (std::size_t const peer : absent) {
      if (!in_time || !meeting_->left[peer]) continue;
      throw Error(ErrorCode::peer_lost,
                  fmt::format("rank {} left before it joined the start-up exchange (round {}, seen by rank {})", peer,
                              round_, rank_));
    }
    throw Error(
        ErrorCode::timeout,
        fmt::format("rank {} did not join the start-up exchange within {} ms (seen by rank {}); WEFT_TIMEOUT sets "
                    "the limit",
                    absent.front(), timeout_.count(), rank_));
  }

  [[nodiscard]] std::vector<std::byte> concatenate(Meeting::Parts const& parts, std::size_t bytes) const {
    std::vector<std::byte> all;
    all.reserve(bytes * parts.size());
    for (std::size_t peer = 0; peer < parts.size(); ++peer) {
      if (parts[peer].size() != bytes) {
        throw Error(ErrorCode::mismatch, fmt::format("start-up exchange: rank {} passed {} bytes, rank {} passed {}",
                                                     rank_, bytes, peer, parts[peer].size()));
      }
      all.insert(all.end(), parts[peer].begin(), parts[peer].end());
    }
    return all;
  }

  std::shared_ptr<Meeting> meeting_;
  std::size_t rank_;
  std::chrono::milliseconds timeout_;
  std::uint64_t round_ = 0;
};

}  // namespace

std::vector<std::shared_ptr<Bootstrap>> thread_bootstraps(int size, Config const& config) {
  if (size < 1) {
    throw Error(ErrorCode::invalid_argument, fmt::format("thread_bootstraps: size is {}, need at least 1", size));
  }
  config.check();
  auto const meeting = std::make_shared<Meeting>(static_cast<std::size_t>(size));
  std::vector<std::shared_ptr<Bootstrap>> elements;
  for (int rank = 0; rank < size; ++rank) {
    elements.push_back(std::make_shared<ThreadBootstrap>(meeting, rank, config.timeout));
  }
  return elements;
}

}  // namespace weft
