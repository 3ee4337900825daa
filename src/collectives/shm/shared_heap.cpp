#include "weft/shared_heap.hpp"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "collectives/shm/shared_heap_impl.hpp"
#include "core/describe_errno.hpp"
#include "core/log.hpp"
#include "weft/error.hpp"

namespace weft {
namespace {

constexpr std::size_t kAlignment = 64;
/// Bytes that are committed at once: whole huge pages, and few looks at the system's memory.
constexpr std::size_t kExtent = std::size_t{8} << 20;

constexpr std::size_t round_up(std::size_t bytes, std::size_t unit) noexcept {
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace

std::shared_ptr<SharedHeap> SharedHeap::create(std::size_t bytes) {
  constexpr std::size_t kLeast = std::size_t{1} << 20;
  constexpr std::size_t kMost = std::size_t{1} << 46;
  if (bytes < kLeast || bytes > kMost) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("SharedHeap::create: {} bytes; a heap has from 1 MiB to 64 TiB", bytes));
  }
  bytes = round_up(bytes, Impl::kHeaderBytes);
  int error_number = 0;
  auto fd = shm::create_memfd(bytes, error_number);
  auto mapping = error_number == 0 ? shm::map_shared(fd.get(), bytes, error_number) : nullptr;
  if (error_number == 0) error_number = shm::commit(*mapping, 0, Impl::kHeaderBytes, fd.get());
  if (error_number != 0) {
    throw Error(ErrorCode::system,
                fmt::format("SharedHeap::create: cannot have {} bytes of address space: {}; ask for a smaller heap",
                            bytes, describe_errno(error_number)));
  }
  auto const nonce = shm::fresh_nonce();
  std::memcpy(mapping->data(), &nonce, sizeof nonce);
  auto impl = std::make_unique<Impl>(std::move(fd), std::move(mapping), nonce);
  return std::shared_ptr<SharedHeap>(new SharedHeap(std::move(impl)));
}

SharedHeap::SharedHeap(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
SharedHeap::~SharedHeap() = default;

void* SharedHeap::allocate(std::size_t bytes) noexcept {
  try {
    return impl_->allocate(bytes);
  } catch (std::bad_alloc const&) {  // no memory for the bookkeeping: the heap counts as full
    return nullptr;
  }
}

void SharedHeap::deallocate(void* block) noexcept {
  if (block != nullptr) impl_->deallocate(block);
}

bool SharedHeap::contains(void const* address) const noexcept {
  auto const& mapping = *impl_->mapping();
  auto const* const byte = static_cast<std::byte const*>(address);
  return byte >= mapping.data() && byte < mapping.data() + mapping.bytes();
}

SharedHeap::Usage SharedHeap::usage() const {
  return impl_->usage();
}

void SharedHeap::before_fork() noexcept {
  impl_->before_fork();
}
void SharedHeap::after_fork_in_parent() noexcept {
  impl_->after_fork_in_parent();
}
void SharedHeap::after_fork_in_child() noexcept {
  impl_->after_fork_in_child();
}

SharedHeap::Impl::Impl(shm::UniqueFd fd, std::shared_ptr<shm::Mapping> mapping, std::uint64_t nonce)
    : fd_(std::move(fd)), mapping_(std::move(mapping)), nonce_(nonce) {}

void* SharedHeap::Impl::allocate(std::size_t bytes) {
  if (bytes > mapping_->bytes()) return nullptr;
  bytes = round_up(std::max<std::size_t>(bytes, 1), kAlignment);
  std::scoped_lock const lock(mutex_);
  if (!serves_) return nullptr;
  auto offset = pool_.take(bytes);
  if (!offset && release_withheld()) offset = pool_.take(bytes);
  if (!offset && grow(bytes)) offset = pool_.take(bytes);
  if (!offset) return nullptr;
  blocks_.insert_or_assign(*offset, Block{bytes, guards_.forks()});
  in_use_ += bytes;
  return mapping_->data() + *offset;
}

void SharedHeap::Impl::deallocate(void* block) {
  auto const offset = static_cast<std::size_t>(static_cast<std::byte*>(block) - mapping_->data());
  std::scoped_lock const lock(mutex_);
  if (!serves_) return;
  auto const found = blocks_.find(offset);
  if (found == blocks_.end()) {
    log(LogLevel::error, fmt::format("SharedHeap::deallocate: {} is no block of this heap; left as it is", block));
    return;
  }
  auto const freed = found->second;
  blocks_.erase(found);
  in_use_ -= freed.bytes;
  if (freed.forks < guards_.forks() && freed.forks < guards_.last_alive()) {
    withheld_.push_back({offset, freed});
  } else {
    pool_.give(offset, freed.bytes);
  }
}

SharedHeap::Usage SharedHeap::Impl::usage() const {
  std::scoped_lock const lock(mutex_);
  std::size_t withheld = 0;
  for (auto const& one : withheld_) withheld += one.block.bytes;
  return {mapping_->bytes(), committed_, in_use_, withheld};
}

bool SharedHeap::Impl::is_shared() const {
  std::scoped_lock const lock(mutex_);
  return serves_;
}

bool SharedHeap::Impl::release_withheld() {
  if (withheld_.empty()) return false;
  auto const last = guards_.last_alive();
  auto const unknown = std::partition(withheld_.begin(), withheld_.end(),
                                      [last](Withheld const& one) { return one.block.forks < last; });
  bool const some = unknown != withheld_.end();
  for (auto one = unknown; one != withheld_.end(); ++one) pool_.give(one->offset, one->block.bytes);
  withheld_.erase(unknown, withheld_.end());
  return some;
}

bool SharedHeap::Impl::grow(std::size_t bytes) {
  auto const least = committed_ + bytes - std::min(bytes, pool_.free_before(committed_));
  auto const capacity = mapping_->bytes();
  if (least > capacity) return false;
  auto const generous = std::min(capacity, round_up(least, kExtent));
  return commit_to(generous) || commit_to(std::min(capacity, round_up(least, kHeaderBytes)));
}

bool SharedHeap::Impl::commit_to(std::size_t end) {
  auto const bytes = end - committed_;
  if (bytes > shm::available_memory() || shm::commit(*mapping_, committed_, end, fd_.get()) != 0) return false;
  pool_.give(committed_, bytes);
  committed_ = end;
  return true;
}

void SharedHeap::Impl::before_fork() {
  mutex_.lock();
  peers_mutex_.lock();
  if (serves_ && !blocks_.empty()) guards_.open();
}

void SharedHeap::Impl::after_fork_in_parent() {
  if (serves_ && !blocks_.empty()) guards_.keep();
  peers_mutex_.unlock();
  mutex_.unlock();
}

void SharedHeap::Impl::after_fork_in_child() {
  if (serves_) {
    serves_ = false;
    guards_.leave();
    auto* const data = mapping_->data();
    if (::mmap(data, committed_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, fd_.get(), 0) !=
        data) {
      log(LogLevel::error, fmt::format("after fork(): cannot copy the shared heap: {}; what this process writes would "
                                       "show in its parent, so it ends here",
                                       describe_errno(errno)));
      std::abort();
    }
  }
  peers_mutex_.unlock();
  mutex_.unlock();
}

std::shared_ptr<shm::Mapping> SharedHeap::Impl::known_peer(std::uint64_t nonce) const {
  std::scoped_lock const lock(peers_mutex_);
  for (auto const& peer : peers_) {
    if (peer.nonce == nonce) return peer.mapping.lock();
  }
  return nullptr;
}

void SharedHeap::Impl::remember_peer(std::uint64_t nonce, std::shared_ptr<shm::Mapping> const& mapping) {
  std::scoped_lock const lock(peers_mutex_);
  auto const stale = [nonce](Peer const& peer) { return peer.nonce == nonce || peer.mapping.expired(); };
  peers_.erase(std::remove_if(peers_.begin(), peers_.end(), stale), peers_.end());
  peers_.push_back({nonce, mapping});
}

}  // namespace weft
