#include "common/board.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <string>
#include <thread>

#include "weft/error.hpp"

namespace weft::perf {
namespace {

constexpr std::size_t kMaxValues = 4096;  // doubles per rank and exchange
constexpr char const* kFolder = "WEFT_PERF_BOARD";
constexpr std::chrono::microseconds kNap{50};

[[noreturn]] void fail(std::string const& what) {
  auto const code = errno == ENOMEM || errno == ENOSPC ? ErrorCode::out_of_memory : ErrorCode::system;
  throw Error(code, fmt::format("perf: cannot share memory between the ranks: {}: {}", what, std::strerror(errno)));
}

std::byte* map(int fd, std::size_t bytes) {
  void* const address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (address == MAP_FAILED) fail(fmt::format("mmap of {} bytes", bytes));
  return static_cast<std::byte*>(address);
}

/// The path by which other ranks open the file behind rank 0's descriptor.
std::string path_of(std::int64_t pid, std::int64_t fd) {
  char const* const folder = std::getenv(kFolder);
  return folder == nullptr ? fmt::format("/proc/{}/fd/{}", pid, fd) : fmt::format("{}/weft-perf-{}", folder, pid);
}

int create_segment(std::size_t bytes) {
  bool const shared_folder = std::getenv(kFolder) != nullptr;
  int const fd = shared_folder ? open(path_of(getpid(), 0).c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600)
                               : memfd_create("weft-perf", MFD_CLOEXEC);
  if (fd < 0) fail(shared_folder ? path_of(getpid(), 0) : "memfd_create");
  // Reserved now, so that exhaustion is an error here and not a SIGBUS while timing.
  if (int const error = posix_fallocate(fd, 0, static_cast<off_t>(bytes)); error != 0) {
    close(fd);
    errno = error;
    fail(fmt::format("reserving {} bytes", bytes));
  }
  return fd;
}

int open_segment(std::int64_t pid, std::int64_t fd) {
  auto const path = path_of(pid, fd);
  int const opened = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (opened < 0) fail(path);
  return opened;
}

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

std::size_t board_bytes(int ranks) {
  return static_cast<std::size_t>(ranks) * (128 + kMaxValues * sizeof(double));
}

}  // namespace

SharedArena::SharedArena(Meeting const& meeting, std::size_t bytes) : bytes_(bytes) {
  if (!meeting.one_host && std::getenv(kFolder) == nullptr) {
    throw Error(ErrorCode::invalid_argument,
                "perf: ranks of several hosts share no memory: leave out what is measured in it (--limit)");
  }
  std::array<std::int64_t, 2> place{};
  int fd = -1;
  if (meeting.rank == 0) {
    fd = create_segment(bytes);
    place = {getpid(), fd};
  }
  meeting.broadcast(place);
  if (meeting.rank != 0) fd = open_segment(place[0], place[1]);
  data_ = map(fd, bytes);
  meeting.barrier();  // all ranks have opened the file, so the descriptor can be closed
  if (meeting.rank == 0 && std::getenv(kFolder) != nullptr) unlink(path_of(place[0], place[1]).c_str());
  close(fd);
}

SharedArena::~SharedArena() {
  munmap(data_, bytes_);
}

Board::Board(Meeting const& meeting) : meeting_(meeting), rank_(meeting.rank), ranks_(meeting.ranks) {
  if (meeting.one_host || std::getenv(kFolder) != nullptr) arena_.emplace(meeting, board_bytes(meeting.ranks));
  auto const cores = processors();
  crowded_ = ranks_ > cores;
  late_ = Yielder::late_of(ranks_, cores);
}

/// How many processors the ranks may run on, all together: each rank may be bound to its own, or all of them to one.
int Board::processors() {
  if (!arena_) return static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  cpu_set_t own;
  CPU_ZERO(&own);
  auto const known = sched_getaffinity(0, sizeof own, &own) == 0;  // fails with more processors than the set can hold
  std::vector<double> mine(CPU_SETSIZE);
  for (std::size_t cpu = 0; cpu < mine.size(); ++cpu) mine[cpu] = !known || CPU_ISSET(cpu, &own) ? 1 : 0;
  auto const any = combine(mine, Across::max);
  return static_cast<int>(std::accumulate(any.begin(), any.end(), 0.0));
}

Board::Flag& Board::flag(int rank) const noexcept {
  return reinterpret_cast<Flag*>(arena_->data())[rank];
}

double* Board::values(int rank) const noexcept {
  auto* const first = arena_->data() + static_cast<std::size_t>(ranks_) * sizeof(Flag);
  return reinterpret_cast<double*>(first) + static_cast<std::size_t>(rank) * kMaxValues;
}

void Board::give_way() {
  if (!yielder_.yield(late_)) std::this_thread::sleep_for(kNap);
}

void Board::wait_for(int rank) {
  auto const& epoch = flag(rank).epoch;
  auto const deadline = std::chrono::steady_clock::now() + meeting_.patience;
  for (std::uint32_t poll = 1; epoch.load(std::memory_order_acquire) < epoch_; ++poll) {
    crowded_ ? give_way() : relax();
    if (poll % 1024 == 0 && std::chrono::steady_clock::now() > deadline) {
      throw Error(ErrorCode::timeout, fmt::format("perf: rank {} did not reach the start line within {} ms (rank {} "
                                                  "waited); it has ended, is stuck or slow: look there",
                                                  rank, meeting_.patience.count(), rank_));
    }
  }
}

void Board::barrier() {
  if (!arena_) return meeting_.barrier();
  ++epoch_;
  flag(rank_).epoch.store(epoch_, std::memory_order_release);
  for (int other = 0; other < ranks_; ++other) {
    if (other != rank_) wait_for(other);
  }
}

std::vector<double> Board::gather(std::vector<double> const& mine) {
  if (mine.size() > kMaxValues) throw Error(ErrorCode::invalid_argument, "perf: too many values for the board");
  std::vector<double> all(mine.size() * static_cast<std::size_t>(ranks_));
  if (!arena_) {
    meeting_.all_gather(mine, all);
    return all;
  }
  barrier();  // all ranks have read the previous values
  std::copy(mine.begin(), mine.end(), values(rank_));
  barrier();
  for (int rank = 0; rank < ranks_; ++rank) {
    std::copy_n(values(rank), mine.size(), all.begin() + static_cast<std::ptrdiff_t>(mine.size()) * rank);
  }
  return all;
}

std::vector<double> Board::combine(std::vector<double> const& mine, Across how) {
  auto const all = gather(mine);
  std::vector<double> result(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(mine.size()));
  if (how == Across::rank0) return result;
  for (std::size_t at = mine.size(); at < all.size(); ++at) {
    auto& of_all = result[at % mine.size()];
    if (how == Across::average) of_all += all[at];
    if (how == Across::min) of_all = std::min(of_all, all[at]);
    if (how == Across::max) of_all = std::max(of_all, all[at]);
  }
  if (how == Across::average) {
    for (auto& value : result) value /= ranks_;
  }
  return result;
}

double Board::sum(double mine) {
  auto const all = gather({mine});
  return std::accumulate(all.begin(), all.end(), 0.0);
}

}  // namespace weft::perf
