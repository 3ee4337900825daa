#include "store_bootstrap.hpp"

#include "mpi_lifetime.hpp"
#include "weft/error.hpp"

namespace weft::torch_backend {

StoreBootstrap::StoreBootstrap(c10::intrusive_ptr<c10d::Store> store, int rank, int size,
                               std::chrono::milliseconds timeout, std::string group)
    : store_(std::move(store)), rank_(rank), size_(size), timeout_(timeout), group_(std::move(group)) {}

std::string StoreBootstrap::key(int rank) const {
  return "weft/" + std::to_string(round_) + "/" + std::to_string(rank);
}

void StoreBootstrap::wait_for_all(std::vector<std::string> const& keys) {
  std::string why;
  try {
    store_->wait(keys, timeout_);
    return;
  } catch (std::exception const& error) {
    why = error.what();
  }
  std::string missing;
  for (std::size_t r = 0; r < keys.size(); ++r) {
    if (!store_->check({keys[r]})) missing += (missing.empty() ? "" : ", ") + std::to_string(r);
  }
  if (missing.empty()) throw Error(ErrorCode::system, "start-up exchange through torch's store: " + why);
  throw Error(ErrorCode::timeout, "rank " + missing +
                                      " did not join the start-up exchange through torch's store within " +
                                      std::to_string(timeout_.count()) + " ms (seen by rank " + std::to_string(rank_) +
                                      (group_.empty() ? "" : " of " + group_) +
                                      "): has it started, and does it make the same groups in the same order?");
}

std::vector<std::byte> StoreBootstrap::all_gather(std::span<std::byte const> mine) {
  if (size_ == 1) return {mine.begin(), mine.end()};
  auto const* const bytes = reinterpret_cast<std::uint8_t const*>(mine.data());
  store_->set(key(rank_), std::vector<std::uint8_t>(bytes, bytes + mine.size()));
  std::vector<std::string> keys;
  for (int r = 0; r < size_; ++r) keys.push_back(key(r));
  wait_for_all(keys);
  auto const parts = store_->hasExtendedApi() ? store_->multiGet(keys) : [&] {
    std::vector<std::vector<std::uint8_t>> each;
    for (auto const& one : keys) each.push_back(store_->get(one));
    return each;
  }();
  std::vector<std::byte> all;
  for (std::size_t r = 0; r < parts.size(); ++r) {
    if (parts[r].size() != mine.size()) {
      throw Error(ErrorCode::mismatch, "start-up exchange: rank " + std::to_string(r) + " passed " +
                                           std::to_string(parts[r].size()) + " bytes, rank " + std::to_string(rank_) +
                                           " " + std::to_string(mine.size()) + "; do all ranks run the same Weft?");
    }
    auto const* const first = reinterpret_cast<std::byte const*>(parts[r].data());
    all.insert(all.end(), first, first + parts[r].size());
  }
  auto const readers = "weft/" + std::to_string(round_) + "/readers";
  if (store_->add(readers, 1) == size_) {
    for (auto const& one : keys) store_->deleteKey(one);
    store_->deleteKey(readers);
  }
  ++round_;
  return all;
}

std::shared_ptr<MpiMembers const> StoreBootstrap::join_mpi() {
  if (!mpi_) mpi_ = find_mpi_members(*this);
  if (mpi_) mpi_lifetime().keep(mpi_);
  return mpi_;
}

}  // namespace weft::torch_backend
