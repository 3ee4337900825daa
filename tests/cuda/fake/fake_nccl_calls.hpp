#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cuda/fake/fake_nccl.hpp"
#include "cuda/fake/fake_nccl_group.hpp"

namespace weft::test {

/// NCCL's functions, as the table has them. Without state of their own; what they need of FakeNccl's insides they are
/// friends for.
struct FakeNcclCalls {
  using Comm = FakeNccl::Comm;
  using Group = FakeNccl::Group;

  /// Calls of an open group, in order.
  struct Queued {
    std::shared_ptr<Comm> comm;
    cudaStream_t stream;
    std::uint64_t number;
    FakePart part;
  };
  static thread_local int depth;
  static thread_local std::vector<Queued> queued;

  static FakeNccl& fake() { return FakeNccl::current(); }
  static FakeGpu& gpu() { return FakeGpu::current(); }

  // What all of them begin with.
  static ncclResult_t begin(char const* name, void const* on, std::size_t bytes = 0);

  static std::shared_ptr<Comm> comm_of(ncclComm_t handle, char const* name);
  static std::nullptr_t violation(std::string const& what) {
    gpu().violate(what);
    return nullptr;
  }

  /// A thread's stay in a communicator.
  class Inside {
   public:
    Inside(Comm& comm, char const* name) : comm_(comm) {
      std::thread::id nobody{};
      mine_ = comm.inside.compare_exchange_strong(nobody, std::this_thread::get_id());
      if (!mine_) violation(std::string(name) + " while another thread is in the communicator");
    }
    ~Inside() {
      if (mine_) comm_.inside = std::thread::id{};
    }
    Inside(Inside const&) = delete;
    Inside& operator=(Inside const&) = delete;

   private:
    Comm& comm_;
    bool mine_;
  };

  /// The communicator is in progress from now on, until it has been asked so often.
  static ncclResult_t go_on(Comm& comm);
  static bool is_free(Comm const& comm, char const* name);

  static ncclComm_t add(std::shared_ptr<Comm> comm);

  // Communicators: fake_nccl_life.cpp.
  static ncclResult_t get_version(int* version);
  static ncclResult_t get_unique_id(ncclUniqueId* id);
  static char const* get_error_string(ncclResult_t result);
  static char const* get_last_error(ncclComm_t /*comm*/);

  static ncclResult_t init(ncclComm_t* made, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config);
  static void fill_later(Comm& comm, std::function<void()> fill);

  /// Takes this rank's wish to a division of its communicator, of which the last one makes the groups.
  static ncclResult_t divide(Comm& comm, int color, int key, std::size_t expected, ncclComm_t* made);
  static std::shared_ptr<Comm> join_division(Comm& comm, int color, int key, std::size_t expected);
  /// Whether everybody's wish is there; then `child` knows its place.
  static bool settle(Comm& child);

  static bool is_quiet(Comm const& comm, char const* name);
  static ncclResult_t split(ncclComm_t handle, int color, int key, ncclComm_t* made, ncclConfig_t* /*config*/);
  static ncclResult_t shrink(ncclComm_t handle, int* excluded, int count, ncclComm_t* made, ncclConfig_t* /*config*/,
                             int flags);
  static ncclResult_t revoke(ncclComm_t handle, int flags);
  static ncclResult_t finalize(ncclComm_t handle);
  static ncclResult_t destroy(ncclComm_t handle);
  static ncclResult_t abort(ncclComm_t handle);
  static ncclResult_t end(char const* name, ncclComm_t handle);
  static ncclResult_t get_async_error(ncclComm_t handle, ncclResult_t* state);
  /// Whether all that the communicator makes others from have come, or will not.
  static bool is_made(Comm& comm);
  static ncclResult_t state_of(Comm& comm);

  // What they are used for: fake_nccl_calls.cpp.
  static ncclResult_t group_start();
  static ncclResult_t group_end();

  /// What has several ranks is launched by a thread of NCCL's.
  static ncclResult_t launch(std::shared_ptr<Comm> const& comm, cudaStream_t stream,
                             std::vector<std::pair<std::uint64_t, FakePart>> parts);

  static void launch_now(std::shared_ptr<Comm> const& comm, cudaStream_t stream,
                         std::vector<std::pair<std::uint64_t, FakePart>> parts);

  static ncclResult_t call(char const* name, FakePart part, ncclComm_t handle, cudaStream_t stream);

  static ncclResult_t all_reduce(void const* send, void* recv, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                                 ncclComm_t comm, cudaStream_t stream);
  static ncclResult_t reduce(void const* send, void* recv, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                             int root, ncclComm_t comm, cudaStream_t stream);
  static ncclResult_t reduce_scatter(void const* send, void* recv, std::size_t count, ncclDataType_t type,
                                     ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);
  static ncclResult_t all_gather(void const* send, void* recv, std::size_t count, ncclDataType_t type, ncclComm_t comm,
                                 cudaStream_t stream);
  static ncclResult_t broadcast(void const* send, void* recv, std::size_t count, ncclDataType_t type, int root,
                                ncclComm_t comm, cudaStream_t stream);
  static ncclResult_t all_to_all(void const* send, void* recv, std::size_t count, ncclDataType_t type, ncclComm_t comm,
                                 cudaStream_t stream);
  static ncclResult_t gather(void const* send, void* recv, std::size_t count, ncclDataType_t type, int root,
                             ncclComm_t comm, cudaStream_t stream);
  static ncclResult_t scatter(void const* send, void* recv, std::size_t count, ncclDataType_t type, int root,
                              ncclComm_t comm, cudaStream_t stream);
  static ncclResult_t send(void const* data, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                           cudaStream_t stream);
  static ncclResult_t recv(void* data, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                           cudaStream_t stream);

  static ncclResult_t make_operator(ncclRedOp_t* made, void* scalar, ncclDataType_t type,
                                    ncclScalarResidence_t residence, ncclComm_t /*comm*/);
  static ncclResult_t destroy_operator(ncclRedOp_t op, ncclComm_t /*comm*/);

  static ncclResult_t mem_alloc(void** memory, std::size_t bytes);
  static ncclResult_t mem_free(void* memory);
  static ncclResult_t window_register(ncclComm_t handle, void* memory, std::size_t bytes, ncclWindow_t* window,
                                      int flags);
  static ncclResult_t window_deregister(ncclComm_t handle, ncclWindow_t window);
};

}  // namespace weft::test
