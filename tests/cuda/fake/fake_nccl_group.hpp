#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "cuda/fake/fake_nccl.hpp"

namespace weft::test {

enum class FakeOp {
  all_reduce,
  reduce,
  reduce_scatter,
  all_gather,
  broadcast,
  all_to_all,
  gather,
  scatter,
  send,
  recv
};

/// One rank's part in one of NCCL's calls.
struct FakePart {
  FakeOp op = FakeOp::all_reduce;
  void const* send = nullptr;
  void* recv = nullptr;
  std::size_t count = 0;
  ncclDataType_t type = ncclUint8;
  ncclRedOp_t reduce = ncclSum;
  double scale = 1;
  bool scaled = false;
  int peer = 0;  ///< or root
};

/// Ranks that communicate.
struct FakeNccl::Group {
  /// Parts of the ranks' call number k, which runs when all have come.
  struct Meeting {
    std::map<int, FakePart> parts;
    bool runs = false;  ///< all have come, with the same call
    bool done = false;
  };
  /// Ranks that split or shrink.
  struct Division {
    std::map<int, std::pair<int, int>> wishes;  // rank → color, key
    std::size_t expected = 0;
    std::map<int, std::shared_ptr<Group>> made;  // by color
  };

  int size = 0;
  std::mutex mutex;
  std::condition_variable changed;
  int arrived = 0;
  std::map<std::uint64_t, Meeting> meetings;
  std::map<std::uint64_t, Division> divisions;
  std::map<std::pair<int, int>, std::deque<std::vector<std::byte>>> mail;
};

/// One rank's communicator.
struct FakeNccl::Comm {
  std::shared_ptr<Group> group;  // of one that is being made: null
  int rank = 0;
  std::atomic<bool> stopped{false};
  std::atomic<bool> revoked{false};
  std::atomic<bool> finalized{false};
  std::uint64_t calls = 0;
  std::uint64_t divisions = 0;
  std::atomic<int> polls_left{0};
  std::atomic<ncclResult_t> failed{ncclSuccess};
  /// The thread that is in a call on it, which only one may be.
  std::atomic<std::thread::id> inside{};
  // What NCCL's own thread does before the communicator is no longer in progress (under FakeNccl's lock): it fills what
  // it was given the addresses of, where it is aborted too, and only then are calls on their stream.
  std::vector<std::shared_ptr<Comm>> making;
  std::vector<std::function<void()>> fills;
  std::vector<std::function<void()>> launches;
  std::set<void*> windows;
  // Of one that comes from another: whose it was, and which division made it.
  std::shared_ptr<Group> parent;
  std::uint64_t division = 0;
  int parent_rank = 0;
};

/// What one group of calls does, on one stream.
void run_parts(std::shared_ptr<FakeNccl::Comm> const& comm,
               std::vector<std::pair<std::uint64_t, FakePart>> const& parts, std::atomic<bool> const& ending);

[[nodiscard]] std::size_t size_of(ncclDataType_t type) noexcept;

}  // namespace weft::test
