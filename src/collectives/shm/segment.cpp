#include "collectives/shm/segment.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>

#include "collectives/shm/fd_passing.hpp"
#include "collectives/shm/process_identity.hpp"
#include "core/describe_errno.hpp"
#include "weft/error.hpp"
#include "weft/memory.hpp"

namespace weft::shm {

Mapping::~Mapping() {
  ::munmap(data_, bytes_);
}

namespace {

enum class Outcome : std::int32_t { ok, no_memory, over_budget, forbidden, failed };

/// What rank 0 tells the others about its segment; the others only tell which process they are.
struct Offer {
  ProcessIdentity process;
  std::int32_t fd = -1;
  Outcome outcome = Outcome::ok;
  std::int32_t error_number = 0;
  std::uint64_t nonce = 0;  // guards against a recycled pid or descriptor
  std::uint64_t bytes = 0;
  std::shared_ptr<Mapping> const* mapping = nullptr;  // valid in rank 0's process until the exchange ends
};

/// What every rank tells the others about its attempt.
struct Report {
  Outcome outcome = Outcome::ok;
  std::int32_t error_number = 0;
};

Outcome classify(int error_number) {
  switch (error_number) {
    case 0: return Outcome::ok;
    case ENOMEM:
    case ENOSPC:
    case EFBIG: return Outcome::no_memory;
    case EACCES:
    case EPERM:
    case ENOENT: return Outcome::forbidden;
    default: return Outcome::failed;
  }
}

/// Throws the same error on every rank when any rank reported one.
void agree(std::vector<Report> const& reports, std::size_t bytes) {
  auto const bad =
      std::find_if(reports.begin(), reports.end(), [](Report const& r) { return r.outcome != Outcome::ok; });
  if (bad == reports.end()) return;
  auto const rank = bad - reports.begin();
  if (bad->outcome == Outcome::over_budget) {
    throw Error(ErrorCode::out_of_memory,
                fmt::format("rank {}: its part of a shared segment of {} bytes does not fit its memory budget; its own "
                            "message says what is in use",
                            rank, bytes));
  }
  auto const reason = describe_errno(bad->error_number);
  if (bad->outcome == Outcome::no_memory) {
    throw Error(ErrorCode::out_of_memory, fmt::format("rank {}: cannot have a shared segment of {} bytes ({} "
                                                      "available): {}; use fewer or smaller buffers, or raise "
                                                      "the memory limit of the job",
                                                      rank, bytes, available_memory(), reason));
  }
  throw Error(ErrorCode::system,
              fmt::format("rank {}: cannot map the shared segment of {} bytes: {}", rank, bytes, reason));
}

/// Ranks in different pid namespaces are refused, because a rank asks the kernel by pid whether another one lives.
void refuse_strangers(std::vector<Offer> const& offers) {
  for (std::size_t rank = 1; rank < offers.size(); ++rank) {
    if (know_each_other(offers.front().process, offers[rank].process)) continue;
    throw Error(
        ErrorCode::unsupported,
        fmt::format("ranks 0 and {} of one host are in different pid namespaces, as those of two containers are, "
                    "and cannot see whether the other lives; let containers share one (docker run --pid), or "
                    "leave WEFT_HOST_ID unset, so that they count as two hosts",
                    rank));
  }
}

/// Sets `too_much` instead of throwing where a budget does not allow this rank's part: the others have to know first.
MemoryCharge charge_part(std::size_t bytes, std::optional<Error>& too_much) {
  try {
    return {MemoryScope::current(MemoryKind::communication), bytes};
  } catch (Error const& error) {
    too_much = error;
    return {};
  }
}

/// The names of a memory control group's files, in one version of control groups.
struct GroupFiles {
  char const* limit;  // a number where there is one
  char const* used;
  std::array<std::string_view, 2> cached;  // in memory.stat: file contents, dropped when memory is needed
};
constexpr GroupFiles kVersion2{"memory.max", "memory.current", {"inactive_file", "active_file"}};
constexpr GroupFiles kVersion1{
    "memory.limit_in_bytes", "memory.usage_in_bytes", {"total_inactive_file", "total_active_file"}};

std::size_t page_cache(std::filesystem::path const& group, GroupFiles const& files) {
  std::size_t bytes = 0;
  std::ifstream stat(group / "memory.stat");
  std::string name;
  for (std::size_t value = 0; stat >> name >> value;) {
    if (name == files.cached[0] || name == files.cached[1]) bytes += value;
  }
  return bytes;
}

/// Bytes that `group` and its parents, up to `root`, leave; any of them may have the limit.
std::size_t left_by_groups(std::filesystem::path root, std::filesystem::path const& group, GroupFiles const& files) {
  auto least = std::numeric_limits<std::size_t>::max();
  auto const look = [&](std::filesystem::path const& one) {
    std::size_t limit = 0;
    std::size_t used = 0;
    if (!(std::ifstream(one / files.limit) >> limit) || !(std::ifstream(one / files.used) >> used)) return;
    used -= std::min(used, page_cache(one, files));
    least = std::min(least, limit > used ? limit - used : 0);
  };
  look(root);
  for (auto const& name : group.relative_path()) look(root /= name);  // a container may see only the first of them
  return least;
}

}  // namespace

std::uint64_t fresh_nonce() {
  std::random_device entropy;
  return (std::uint64_t{entropy()} << 32U) | entropy();
}

std::shared_ptr<Mapping> map_shared(int fd, std::size_t bytes, int& error_number) {
  auto* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) {
    error_number = errno;
    return nullptr;
  }
  constexpr std::size_t kHugeWorthwhile = std::size_t{4} << 20U;
  if (bytes >= kHugeWorthwhile) ::madvise(data, bytes, MADV_HUGEPAGE);  // advice only: fewer TLB misses where allowed
  return std::make_shared<Mapping>(static_cast<std::byte*>(data), bytes);
}

UniqueFd create_memfd(std::size_t bytes, int& error_number) {
  UniqueFd fd{::memfd_create("weft", MFD_CLOEXEC | MFD_ALLOW_SEALING)};
  if (fd.get() < 0 || ::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0 ||
      ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    error_number = errno;
    return UniqueFd{};
  }
  return fd;
}

int commit(Mapping const& mapping, std::size_t begin, std::size_t end, int fd) {
  if (begin >= end) return 0;
#ifndef MADV_POPULATE_WRITE
  constexpr int MADV_POPULATE_WRITE = 23;
#endif
  if (::madvise(mapping.data() + begin, end - begin, MADV_POPULATE_WRITE) == 0) return 0;
  if (errno != EINVAL) return errno == EFAULT ? ENOMEM : errno;
  return ::posix_fallocate(fd, static_cast<off_t>(begin), static_cast<off_t>(end - begin));
}

UniqueFd open_descriptor(std::int64_t pid, int descriptor, int& error_number) {
  auto const path = fmt::format("/proc/{}/fd/{}", pid, descriptor);
  UniqueFd fd{::open(path.c_str(), O_RDWR | O_CLOEXEC)};
  if (fd.get() < 0) error_number = errno;
  return fd;
}

std::size_t available_memory(std::filesystem::path const& groups, std::filesystem::path const& own) {
  auto least = std::numeric_limits<std::size_t>::max();
  std::ifstream meminfo("/proc/meminfo");
  for (std::string line; std::getline(meminfo, line);) {
    unsigned long long kib = 0;
    if (std::sscanf(line.c_str(), "MemAvailable: %llu kB", &kib) == 1) least = std::min<std::size_t>(least, kib * 1024);
  }
  std::ifstream memberships(own);
  for (std::string line; std::getline(memberships, line);) {  // NUMBER:CONTROLLERS:GROUP, without controllers version 2
    auto const controllers = line.find(':') + 1;
    auto const group = line.find(':', controllers) + 1;
    if (controllers == 0 || group == 0) continue;
    if (group == controllers + 1) {
      least = std::min(least, left_by_groups(groups, line.substr(group), kVersion2));
    } else if ((',' + line.substr(controllers, group - controllers - 1) + ',').find(",memory,") != std::string::npos) {
      least = std::min(least, left_by_groups(groups / "memory", line.substr(group), kVersion1));
    }
  }
  return least;
}

std::shared_ptr<Mapping> create_segment(int rank, int size, std::size_t bytes, std::size_t part_bytes,
                                        Exchange const& exchange) {
  auto const page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  bytes = (std::max<std::size_t>(bytes, 1) + page - 1) / page * page;

  std::shared_ptr<Mapping> mapping;
  UniqueFd fd;
  Offer offer{.process = this_process()};
  if (rank == 0) {
    int error_number = bytes > available_memory() ? ENOMEM : 0;
    if (error_number == 0) fd = create_memfd(bytes, error_number);
    if (error_number == 0) mapping = map_shared(fd.get(), bytes, error_number);
    if (mapping) {
      offer.nonce = fresh_nonce();
      std::memcpy(mapping->data(), &offer.nonce, sizeof offer.nonce);
    }
    offer.fd = fd.get();
    offer.bytes = bytes;
    offer.outcome = classify(error_number);
    offer.error_number = error_number;
    offer.mapping = &mapping;
  }
  auto const offers = gather(exchange, offer);
  refuse_strangers(offers);
  auto const& offered = offers.front();
  if (offered.outcome != Outcome::ok) agree({Report{offered.outcome, offered.error_number}}, bytes);

  Report mine;
  if (rank != 0 && offered.process == offer.process) {
    mapping = *offered.mapping;
  } else if (rank != 0) {
    fd = open_descriptor(offered.process.pid, offered.fd, mine.error_number);
    if (fd.get() >= 0) mapping = map_shared(fd.get(), bytes, mine.error_number);
    if (mapping && std::memcmp(mapping->data(), &offered.nonce, sizeof offered.nonce) != 0) mine.error_number = ENOENT;
    mine.outcome = classify(mine.error_number);
  }
  auto reports = gather(exchange, mine);
  auto const forbidden = [](Report const& r) { return r.outcome == Outcome::forbidden; };
  if (std::any_of(reports.begin(), reports.end(), forbidden)) {
    // The ranks may not look into one another's /proc: pass the descriptor itself to those that need it.
    auto const needy = static_cast<int>(std::count_if(reports.begin(), reports.end(), forbidden));
    if (rank == 0)
      mine.error_number = send_descriptor(fd.get(), offered.nonce, needy, [&] { gather(exchange, Report{}); });
    else {
      gather(exchange, Report{});  // rank 0 listens from here on
      if (forbidden(mine)) {
        mine = Report{};
        fd = UniqueFd{receive_descriptor(offered.nonce, mine.error_number)};
        mapping = fd.get() >= 0 ? map_shared(fd.get(), bytes, mine.error_number) : nullptr;
      }
    }
    mine.outcome = mine.error_number == 0 ? Outcome::ok : Outcome::failed;
    reports = gather(exchange, mine);
  }
  agree(reports, bytes);

  auto const begin = std::min(bytes, part_bytes * static_cast<std::size_t>(rank) / page * page);
  auto const end =
      rank + 1 == size ? bytes : std::min(bytes, part_bytes * static_cast<std::size_t>(rank + 1) / page * page);
  std::optional<Error> too_much;
  MemoryCharge charge = charge_part(part_bytes, too_much);
  // Ranks of rank 0's process have its mapping, and with it the descriptor, which rank 0 keeps until all are through.
  auto const file = offered.process == offer.process ? offered.fd : fd.get();
  mine.error_number = too_much ? ENOMEM : commit(*mapping, begin, end, file);
  mine.outcome = too_much ? Outcome::over_budget : classify(mine.error_number);
  reports = gather(exchange, mine);
  if (too_much) throw *too_much;
  agree(reports, bytes);
  if (rank == 0) std::memset(mapping->data(), 0, sizeof offer.nonce);
  gather(exchange, mine);  // nobody uses the segment before the nonce is gone, nor after rank 0 closed the descriptor
  return hold_charge(std::move(mapping), std::move(charge));
}

}  // namespace weft::shm
