#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "collectives/nccl/nccl_communicator.hpp"
#include "cuda/fake/fake_gpu.hpp"
#include "weft/communicator.hpp"

namespace weft::test {

/// An NCCL whose ranks are threads of this process and whose memory is the FakeGpu's: its calls move and reduce data
/// when their turn on the fake streams comes. Calls that differ between ranks never end, until somebody stops them.
/// What one rank stops ends on the others too, with garbage. One at a time, while there is a FakeGpu.
///
/// Communicators are non-blocking, and as unforgiving as NCCL's: what is made is written to its address later, calls
/// are on their stream later, both when the communicator says that it is no longer in progress; until then it takes no
/// other call; and two threads in one communicator are an error.
class FakeNccl {
 public:
  FakeNccl();
  ~FakeNccl();
  FakeNccl(FakeNccl const&) = delete;
  FakeNccl& operator=(FakeNccl const&) = delete;

  static FakeNccl& current();
  /// What a communicator is connected by. `with_revoke`: as from NCCL 2.28.9 on.
  [[nodiscard]] static nccl::Libraries libraries(int device = 0, bool with_revoke = true);

  /// Connects the ranks of a communicator. Collective.
  static void connect(Communicator& communicator, int device = 0, bool with_revoke = true);

  // What is to go wrong.
  void fail_next(std::string const& name, ncclResult_t result);
  [[nodiscard]] ncclResult_t take_failure(std::string const& name);
  /// What rank's communicators tell from now on when asked for asynchronous errors.
  void set_async_error(int rank, ncclResult_t result);
  /// So many times a communicator says that it is in progress, after each call that may be.
  int polls = 2;
  /// ncclCommGetAsyncError takes a while, so that two threads meet in it.
  std::atomic<bool> answers_slowly{false};
  /// Nobody's creation ends.
  bool init_hangs = false;
  /// ncclCommWindowRegister succeeds without giving a window, as where GPUs do not reach one another.
  bool without_windows = false;
  /// ncclCommWindowRegister does not come to its end, until the communicator is stopped.
  bool windows_hang = false;
  /// ncclCommAbort waits until this is false again.
  std::atomic<bool> abort_hangs{false};
  /// After so many collectives for which all ranks have come the next do not end, until they are stopped; -1: all do.
  std::atomic<int> ending_collectives{-1};
  [[nodiscard]] bool take_ending() noexcept {
    auto left = ending_collectives.load();
    while (left > 0 && !ending_collectives.compare_exchange_weak(left, left - 1)) {
    }
    return left != 0;
  }
  /// The other ranks are of other processes, and are taken to have come: only calls of one rank end.
  bool others_are_elsewhere = false;
  /// Results of collectives have a wrong byte.
  bool corrupts = false;

  /// Communicators that were made and neither destroyed nor aborted.
  [[nodiscard]] std::size_t live() const;

  struct Group;
  struct Comm;

 private:
  friend struct FakeNcclCalls;
  mutable std::mutex mutex_;
  std::map<std::string, std::vector<ncclResult_t>> failures_;
  std::map<ncclComm_t, std::shared_ptr<Comm>> comms_;
  std::map<std::uint64_t, std::shared_ptr<Group>> groups_;  // by unique id
  std::map<int, ncclResult_t> async_;
  std::map<int, double> scales_;  // of made operators
  std::uint64_t ids_ = 0;
  int operators_ = ncclNumOps;
};

}  // namespace weft::test
