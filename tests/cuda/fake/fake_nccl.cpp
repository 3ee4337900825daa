// The table of NCCL's functions that FakeNccl stands behind.
#include "cuda/fake/fake_nccl.hpp"

#include <algorithm>
#include <cstring>

#include "collectives/device_access.hpp"
#include "collectives/nccl/nccl_factory.hpp"
#include "cuda/fake/fake_nccl_group.hpp"

namespace weft::test {
namespace {

std::atomic<FakeNccl*> the_nccl{nullptr};

}  // namespace

/// Functions without state of their own; what they need of FakeNccl's insides they are friends for.
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

  static ncclResult_t begin(char const* name, void const* on, std::size_t bytes = 0) {
    gpu().record(name, on, bytes, depth);
    return fake().take_failure(name);
  }

  static std::shared_ptr<Comm> comm_of(ncclComm_t handle, char const* name) {
    std::scoped_lock const lock(fake().mutex_);
    auto const found = fake().comms_.find(handle);
    if (found != fake().comms_.end()) return found->second;
    return violation(std::string(name) + " of a communicator that is not there");
  }
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
  static ncclResult_t go_on(Comm& comm) {
    comm.polls_left = fake().polls;
    return ncclInProgress;
  }
  static bool is_free(Comm const& comm, char const* name) {
    if (comm.polls_left == 0) return true;
    violation(std::string(name) + " before the communicator was through with the call before");
    return false;
  }

  static ncclComm_t add(std::shared_ptr<Comm> comm) {
    comm->polls_left = fake().polls;
    auto const handle = reinterpret_cast<ncclComm_t>(comm.get());
    std::scoped_lock const lock(fake().mutex_);
    fake().comms_[handle] = std::move(comm);
    return handle;
  }

  static ncclResult_t get_version(int* version) {
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
  }
  static ncclResult_t get_unique_id(ncclUniqueId* id) {
    auto const failure = begin("ncclGetUniqueId", nullptr);
    std::scoped_lock const lock(fake().mutex_);
    auto const number = ++fake().ids_;
    std::memcpy(id->internal, &number, sizeof number);
    return failure;
  }
  static char const* get_error_string(ncclResult_t result) {
    return result == ncclRemoteError ? "remote process exited or there was a network error" : "injected";
  }
  static char const* get_last_error(ncclComm_t /*comm*/) { return ""; }

  static ncclResult_t init(ncclComm_t* made, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
    if (auto const failure = begin("ncclCommInitRankConfig", nullptr); failure != ncclSuccess) return failure;
    if (config->blocking != 0) gpu().violate("a blocking communicator");
    std::uint64_t number = 0;
    std::memcpy(&number, id.internal, sizeof number);
    auto comm = std::make_shared<Comm>();
    comm->rank = rank;
    {
      std::scoped_lock const lock(fake().mutex_);
      auto& group = fake().groups_[number];
      if (!group) {
        group = std::make_shared<Group>();
        group->size = ranks;
      }
      comm->group = group;
    }
    {
      std::scoped_lock const lock(comm->group->mutex);
      comm->group->arrived = fake().others_are_elsewhere ? ranks : comm->group->arrived + 1;
    }
    auto& started = *comm;
    *made = add(std::move(comm));
    fill_later(started, [made, handle = *made] { *made = handle; });
    return ncclInProgress;
  }
  static void fill_later(Comm& comm, std::function<void()> fill) {
    std::scoped_lock const lock(fake().mutex_);
    comm.fills.push_back(std::move(fill));
  }

  /// Takes this rank's wish to a division of its communicator, of which the last one makes the groups.
  static ncclResult_t divide(Comm& comm, int color, int key, std::size_t expected, ncclComm_t* made) {
    *made = nullptr;
    auto const child = join_division(comm, color, key, expected);
    go_on(comm);
    if (!child) return ncclSuccess;
    auto const handle = add(child);
    fill_later(comm, [made, handle] { *made = handle; });
    std::scoped_lock const lock(fake().mutex_);
    comm.making.push_back(child);
    return ncclSuccess;  // though the communicator is in progress: as of 2.28
  }
  static std::shared_ptr<Comm> join_division(Comm& comm, int color, int key, std::size_t expected) {
    auto const number = ++comm.divisions;
    auto& group = *comm.group;
    std::scoped_lock const lock(group.mutex);
    auto& division = group.divisions[number];
    division.expected = expected;
    division.wishes[comm.rank] = {color, key};
    if (color == NCCL_SPLIT_NOCOLOR) return nullptr;
    auto& group_made = division.made[color];
    if (!group_made) group_made = std::make_shared<Group>();
    auto child = std::make_shared<Comm>();
    child->parent = comm.group;
    child->division = number;
    child->parent_rank = comm.rank;
    return child;
  }
  /// Whether everybody's wish is there; then `child` knows its place.
  static bool settle(Comm& child) {
    if (child.group) return true;
    std::scoped_lock const lock(child.parent->mutex);
    auto const& division = child.parent->divisions[child.division];
    if (division.wishes.size() < division.expected) return false;
    auto const color = division.wishes.at(child.parent_rank).first;
    std::vector<std::pair<int, int>> members;  // key, rank
    for (auto const& [rank, wish] : division.wishes) {
      if (wish.first == color) members.emplace_back(wish.second, rank);
    }
    std::sort(members.begin(), members.end());
    for (std::size_t i = 0; i < members.size(); ++i) {
      if (members[i].second == child.parent_rank) child.rank = static_cast<int>(i);
    }
    auto const group = division.made.at(color);
    {
      std::scoped_lock const members_lock(group->mutex);
      group->size = static_cast<int>(members.size());
      group->arrived = group->size;
    }
    child.group = group;
    return true;
  }

  static bool is_quiet(Comm const& comm, char const* name) {
    if (!comm.revoked || comm.polls_left == 0) return true;
    gpu().violate(std::string(name) + " of a revoked communicator that has not come to rest");
    return false;
  }
  static ncclResult_t split(ncclComm_t handle, int color, int key, ncclComm_t* made, ncclConfig_t* /*config*/) {
    auto const failure = begin("ncclCommSplit", handle);
    auto const comm = comm_of(handle, "ncclCommSplit");
    if (failure != ncclSuccess || !comm) return failure != ncclSuccess ? failure : ncclInvalidArgument;
    Inside const inside(*comm, "ncclCommSplit");
    if (!is_quiet(*comm, "ncclCommSplit") || !is_free(*comm, "ncclCommSplit")) return ncclInvalidUsage;
    return divide(*comm, color, key, static_cast<std::size_t>(comm->group->size), made);
  }
  static ncclResult_t shrink(ncclComm_t handle, int* excluded, int count, ncclComm_t* made, ncclConfig_t* /*config*/,
                             int flags) {
    auto const failure = begin(flags == NCCL_SHRINK_ABORT ? "ncclCommShrink(abort)" : "ncclCommShrink", handle);
    auto const comm = comm_of(handle, "ncclCommShrink");
    if (failure != ncclSuccess || !comm) return failure != ncclSuccess ? failure : ncclInvalidArgument;
    if (count <= 0 || std::count(excluded, excluded + count, comm->rank) != 0) return ncclInvalidArgument;
    Inside const inside(*comm, "ncclCommShrink");
    if (flags == NCCL_SHRINK_ABORT) comm->stopped = true;
    if (flags != NCCL_SHRINK_ABORT && !is_quiet(*comm, "ncclCommShrink")) return ncclInvalidUsage;
    return divide(*comm, 0, comm->rank, static_cast<std::size_t>(comm->group->size - count), made);
  }
  static ncclResult_t revoke(ncclComm_t handle, int flags) {
    auto const failure = begin("ncclCommRevoke", handle);
    auto const comm = comm_of(handle, "ncclCommRevoke");
    if (failure != ncclSuccess || !comm || flags != 0) return failure != ncclSuccess ? failure : ncclInvalidArgument;
    if (comm->revoked.exchange(true)) {
      gpu().violate("ncclCommRevoke for the second time");
      return ncclInvalidArgument;
    }
    comm->stopped = true;
    std::scoped_lock const lock(fake().mutex_);
    if (!comm->making.empty()) comm->failed = ncclInternalError;  // what is being made ends
    return go_on(*comm);                                          // until it has come to rest
  }
  static ncclResult_t finalize(ncclComm_t handle) {
    auto const failure = begin("ncclCommFinalize", handle);
    auto const comm = comm_of(handle, "ncclCommFinalize");
    if (failure != ncclSuccess || !comm) return failure != ncclSuccess ? failure : ncclInvalidArgument;
    if (comm->revoked) {
      gpu().violate("ncclCommFinalize of a revoked communicator");
      return ncclInvalidUsage;
    }
    Inside const inside(*comm, "ncclCommFinalize");
    if (!is_free(*comm, "ncclCommFinalize")) return ncclInvalidUsage;
    comm->finalized = true;
    return go_on(*comm);
  }
  static ncclResult_t destroy(ncclComm_t handle) { return end("ncclCommDestroy", handle); }
  static ncclResult_t abort(ncclComm_t handle) {
    while (fake().abort_hangs) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return end("ncclCommAbort", handle);
  }
  static ncclResult_t end(char const* name, ncclComm_t handle) {
    auto const failure = begin(name, handle);
    auto const comm = comm_of(handle, name);
    if (failure != ncclSuccess || !comm) return failure != ncclSuccess ? failure : ncclInvalidArgument;
    comm->stopped = true;
    std::vector<std::function<void()>> fills;
    {
      std::scoped_lock const lock(fake().mutex_);
      fills = std::exchange(comm->fills, {});
      comm->launches.clear();
    }
    for (auto const& fill : fills) fill();
    std::scoped_lock const lock(fake().mutex_);
    fake().comms_.erase(handle);
    return ncclSuccess;
  }
  static ncclResult_t get_async_error(ncclComm_t handle, ncclResult_t* state) {
    auto const comm = comm_of(handle, "ncclCommGetAsyncError");
    if (!comm) return ncclInvalidArgument;
    Inside const inside(*comm, "ncclCommGetAsyncError");
    if (fake().answers_slowly) std::this_thread::sleep_for(std::chrono::microseconds(100));
    *state = state_of(*comm);
    return ncclSuccess;
  }
  /// Whether all that the communicator makes others from have come, or will not.
  static bool is_made(Comm& comm) {
    if (comm.failed != ncclSuccess) return true;
    std::vector<std::shared_ptr<Comm>> making;
    {
      std::scoped_lock const lock(fake().mutex_);
      making = comm.making;
    }
    return std::all_of(making.begin(), making.end(), [](auto const& child) { return settle(*child); });
  }
  static ncclResult_t state_of(Comm& comm) {
    if (fake().init_hangs || !settle(comm)) return ncclInProgress;
    {
      std::scoped_lock const lock(comm.group->mutex);
      if (comm.group->arrived < comm.group->size) return ncclInProgress;
    }
    if (!is_made(comm)) return ncclInProgress;
    std::vector<std::function<void()>> due;
    {
      std::scoped_lock const lock(fake().mutex_);
      if (comm.polls_left > 0) {
        --comm.polls_left;
        return ncclInProgress;
      }
      comm.making.clear();
      due = std::exchange(comm.fills, {});
      auto const launches = std::exchange(comm.launches, {});
      due.insert(due.end(), launches.begin(), launches.end());
    }
    for (auto const& one : due) one();
    if (comm.failed != ncclSuccess) return comm.failed;
    std::scoped_lock const lock(fake().mutex_);
    auto const injected = fake().async_.find(comm.rank);
    return injected == fake().async_.end() ? ncclSuccess : injected->second;
  }

  static ncclResult_t group_start() {
    auto const failure = begin("ncclGroupStart", nullptr);
    ++depth;
    return failure;
  }
  static ncclResult_t group_end() {
    auto const failure = begin("ncclGroupEnd", nullptr);
    if (depth == 0) {
      gpu().violate("ncclGroupEnd without ncclGroupStart");
      return ncclInvalidUsage;
    }
    if (--depth > 0) return failure;
    auto const all = std::exchange(queued, {});
    if (failure != ncclSuccess) return failure;
    std::vector<std::pair<std::uint64_t, FakePart>> parts;
    for (auto const& one : all) {
      parts.emplace_back(one.number, one.part);
      if (one.stream != all.front().stream) gpu().violate("a group of calls on several streams");
    }
    return all.empty() ? ncclSuccess : launch(all.front().comm, all.front().stream, std::move(parts));
  }

  /// What has several ranks is launched by a thread of NCCL's.
  static ncclResult_t launch(std::shared_ptr<Comm> const& comm, cudaStream_t stream,
                             std::vector<std::pair<std::uint64_t, FakePart>> parts) {
    if (comm->group->size == 1 || fake().polls == 0) return launch_now(comm, stream, std::move(parts)), ncclSuccess;
    std::scoped_lock const lock(fake().mutex_);
    comm->launches.emplace_back([comm, stream, parts = std::move(parts)] { launch_now(comm, stream, parts); });
    return go_on(*comm);
  }

  static void launch_now(std::shared_ptr<Comm> const& comm, cudaStream_t stream,
                         std::vector<std::pair<std::uint64_t, FakePart>> parts) {
    auto const& ending = gpu().ending();
    // What is in a graph meets anew each time the graph runs.
    bool const captured = gpu().is_capturing(stream);
    gpu().enqueue(stream, [comm, parts = std::move(parts), &ending, captured]() mutable {
      run_parts(comm, parts, ending);
      if (!captured) return;
      for (auto& [number, part] : parts) number += std::uint64_t{1} << 32U;
    });
  }

  static ncclResult_t call(char const* name, FakePart part, ncclComm_t handle, cudaStream_t stream) {
    auto const bytes = part.count * size_of(part.type);
    if (auto const failure = begin(name, stream, bytes); failure != ncclSuccess) return failure;
    auto const comm = comm_of(handle, name);
    if (!comm) return ncclInvalidArgument;
    Inside const inside(*comm, name);
    if (comm->stopped || comm->finalized || !is_free(*comm, name)) return ncclInvalidUsage;
    std::uint64_t number = 0;
    {
      std::scoped_lock const lock(fake().mutex_);
      auto const made = fake().scales_.find(static_cast<int>(part.reduce));
      part.scaled = made != fake().scales_.end();
      if (part.scaled) part.scale = made->second;
      if (part.op != FakeOp::send && part.op != FakeOp::recv) number = ++comm->calls;
    }
    if (depth == 0) return launch(comm, stream, {{number, part}});
    queued.push_back({comm, stream, number, part});
    return ncclSuccess;
  }

  static ncclResult_t all_reduce(void const* send, void* recv, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                                 ncclComm_t comm, cudaStream_t stream) {
    return call("ncclAllReduce", {FakeOp::all_reduce, send, recv, count, type, op}, comm, stream);
  }
  static ncclResult_t reduce(void const* send, void* recv, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                             int root, ncclComm_t comm, cudaStream_t stream) {
    return call("ncclReduce", {FakeOp::reduce, send, recv, count, type, op, 1, false, root}, comm, stream);
  }
  static ncclResult_t reduce_scatter(void const* send, void* recv, std::size_t count, ncclDataType_t type,
                                     ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
    return call("ncclReduceScatter", {FakeOp::reduce_scatter, send, recv, count, type, op}, comm, stream);
  }
  static ncclResult_t all_gather(void const* send, void* recv, std::size_t count, ncclDataType_t type, ncclComm_t comm,
                                 cudaStream_t stream) {
    return call("ncclAllGather", {FakeOp::all_gather, send, recv, count, type}, comm, stream);
  }
  static ncclResult_t broadcast(void const* send, void* recv, std::size_t count, ncclDataType_t type, int root,
                                ncclComm_t comm, cudaStream_t stream) {
    return call("ncclBroadcast", {FakeOp::broadcast, send, recv, count, type, ncclSum, 1, false, root}, comm, stream);
  }
  static ncclResult_t all_to_all(void const* send, void* recv, std::size_t count, ncclDataType_t type, ncclComm_t comm,
                                 cudaStream_t stream) {
    if (send == recv && count > 0) gpu().violate("ncclAlltoAll in place");
    return call("ncclAlltoAll", {FakeOp::all_to_all, send, recv, count, type}, comm, stream);
  }
  static ncclResult_t gather(void const* send, void* recv, std::size_t count, ncclDataType_t type, int root,
                             ncclComm_t comm, cudaStream_t stream) {
    return call("ncclGather", {FakeOp::gather, send, recv, count, type, ncclSum, 1, false, root}, comm, stream);
  }
  static ncclResult_t scatter(void const* send, void* recv, std::size_t count, ncclDataType_t type, int root,
                              ncclComm_t comm, cudaStream_t stream) {
    return call("ncclScatter", {FakeOp::scatter, send, recv, count, type, ncclSum, 1, false, root}, comm, stream);
  }
  static ncclResult_t send(void const* data, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                           cudaStream_t stream) {
    return call("ncclSend", {FakeOp::send, data, nullptr, count, type, ncclSum, 1, false, peer}, comm, stream);
  }
  static ncclResult_t recv(void* data, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                           cudaStream_t stream) {
    return call("ncclRecv", {FakeOp::recv, nullptr, data, count, type, ncclSum, 1, false, peer}, comm, stream);
  }

  static double value_of(void const* scalar, ncclDataType_t type) {
    auto const as = [&](auto value) {
      std::memcpy(&value, scalar, sizeof value);
      return static_cast<double>(value);
    };
    switch (type) {
      case ncclInt8: return as(std::int8_t{});
      case ncclUint8: return as(std::uint8_t{});
      case ncclInt32: return as(std::int32_t{});
      case ncclUint32: return as(std::uint32_t{});
      case ncclInt64: return as(std::int64_t{});
      case ncclUint64: return as(std::uint64_t{});
      case ncclFloat32: return as(float{});
      case ncclFloat64: return as(double{});
      case ncclFloat8e4m3: return static_cast<double>(to_float(Float8E4M3{*static_cast<std::uint8_t const*>(scalar)}));
      case ncclFloat8e5m2: return static_cast<double>(to_float(Float8E5M2{*static_cast<std::uint8_t const*>(scalar)}));
      default: break;
    }
    std::uint16_t bits = 0;
    std::memcpy(&bits, scalar, sizeof bits);
    return static_cast<double>(type == ncclFloat16 ? to_float(Half{bits}) : to_float(BFloat16{bits}));
  }
  static ncclResult_t make_operator(ncclRedOp_t* made, void* scalar, ncclDataType_t type,
                                    ncclScalarResidence_t residence, ncclComm_t /*comm*/) {
    if (residence != ncclScalarHostImmediate) gpu().violate("a scalar on the device");
    auto const failure = begin("ncclRedOpCreatePreMulSum", nullptr);
    std::scoped_lock const lock(fake().mutex_);
    *made = static_cast<ncclRedOp_t>(++fake().operators_);
    fake().scales_[fake().operators_] = value_of(scalar, type);
    return failure;
  }
  static ncclResult_t destroy_operator(ncclRedOp_t op, ncclComm_t /*comm*/) {
    if (depth > 0) gpu().violate("an operator was destroyed before its group ended");
    std::scoped_lock const lock(fake().mutex_);
    return fake().scales_.erase(static_cast<int>(op)) == 1 ? ncclSuccess : ncclInvalidArgument;
  }

  static ncclResult_t mem_alloc(void** memory, std::size_t bytes) {
    if (auto const failure = begin("ncclMemAlloc", nullptr, bytes); failure != ncclSuccess) return failure;
    *memory = gpu().take_memory(bytes, 4096);
    return *memory == nullptr ? ncclUnhandledCudaError : ncclSuccess;
  }
  static ncclResult_t mem_free(void* memory) {
    begin("ncclMemFree", nullptr);
    {
      std::scoped_lock const lock(fake().mutex_);
      for (auto const& [handle, comm] : fake().comms_) {
        if (!comm->stopped && comm->windows.count(memory) != 0) gpu().violate("memory was freed that has a window");
      }
    }
    gpu().return_memory(memory);
    return ncclSuccess;
  }
  static ncclResult_t window_register(ncclComm_t handle, void* memory, std::size_t bytes, ncclWindow_t* window,
                                      int flags) {
    if (auto const failure = begin("ncclCommWindowRegister", handle, bytes); failure != ncclSuccess) return failure;
    auto const comm = comm_of(handle, "ncclCommWindowRegister");
    if (!comm) return ncclInvalidArgument;
    Inside const inside(*comm, "ncclCommWindowRegister");
    if (!is_free(*comm, "ncclCommWindowRegister")) return ncclInvalidUsage;
    if (reinterpret_cast<std::uintptr_t>(memory) % NCCL_WIN_REQUIRED_ALIGNMENT != 0 || flags != NCCL_WIN_COLL_SYMMETRIC)
      gpu().violate("a window that NCCL does not take");
    *window = nullptr;
    go_on(*comm);
    if (fake().without_windows) return ncclSuccess;
    fill_later(*comm, [window, memory, comm = comm.get()] {
      *window = reinterpret_cast<ncclWindow_t>(memory);
      comm->windows.insert(memory);
    });
    return ncclSuccess;  // though the communicator is in progress
  }
  static ncclResult_t window_deregister(ncclComm_t handle, ncclWindow_t window) {
    if (auto const failure = begin("ncclCommWindowDeregister", handle); failure != ncclSuccess) return failure;
    auto const comm = comm_of(handle, "ncclCommWindowDeregister");
    if (!comm) return ncclInvalidArgument;
    Inside const inside(*comm, "ncclCommWindowDeregister");
    if (!is_free(*comm, "ncclCommWindowDeregister")) return ncclInvalidUsage;
    fill_later(*comm, [window, comm = comm.get()] { comm->windows.erase(window); });
    return go_on(*comm);
  }
};

thread_local int FakeNcclCalls::depth = 0;
thread_local std::vector<FakeNcclCalls::Queued> FakeNcclCalls::queued;

FakeNccl::FakeNccl() {
  FakeNccl* none = nullptr;
  if (!the_nccl.compare_exchange_strong(none, this)) std::abort();  // two at once
}
FakeNccl::~FakeNccl() {
  the_nccl = nullptr;
}
FakeNccl& FakeNccl::current() {
  return *the_nccl.load();
}

nccl::Libraries FakeNccl::libraries(int device, bool with_revoke) {
  using Calls = FakeNcclCalls;
  auto library = std::make_shared<nccl::NcclLibrary>();
  library->version = NCCL_VERSION_CODE;
  library->path = "fake";
  library->functions = {
      .get_version = Calls::get_version,
      .get_unique_id = Calls::get_unique_id,
      .get_error_string = Calls::get_error_string,
      .get_last_error = Calls::get_last_error,
      .comm_init_rank_config = Calls::init,
      .comm_split = Calls::split,
      .comm_shrink = Calls::shrink,
      .comm_finalize = Calls::finalize,
      .comm_destroy = Calls::destroy,
      .comm_abort = Calls::abort,
      .comm_get_async_error = Calls::get_async_error,
      .group_start = Calls::group_start,
      .group_end = Calls::group_end,
      .all_reduce = Calls::all_reduce,
      .reduce = Calls::reduce,
      .reduce_scatter = Calls::reduce_scatter,
      .all_gather = Calls::all_gather,
      .broadcast = Calls::broadcast,
      .all_to_all = Calls::all_to_all,
      .gather = Calls::gather,
      .scatter = Calls::scatter,
      .send = Calls::send,
      .recv = Calls::recv,
      .red_op_create_pre_mul_sum = Calls::make_operator,
      .red_op_destroy = Calls::destroy_operator,
      .mem_alloc = Calls::mem_alloc,
      .mem_free = Calls::mem_free,
      .comm_window_register = Calls::window_register,
      .comm_window_deregister = Calls::window_deregister,
      .comm_revoke = with_revoke ? Calls::revoke : nullptr,
  };
  return {&FakeGpu::functions(), std::move(library), device};
}

void FakeNccl::connect(Communicator& communicator, int device, bool with_revoke) {
  DeviceAccess::connect(communicator, *nccl::factory_of(libraries(device, with_revoke)));
}

void FakeNccl::fail_next(std::string const& name, ncclResult_t result) {
  std::scoped_lock const lock(mutex_);
  failures_[name].push_back(result);
}

ncclResult_t FakeNccl::take_failure(std::string const& name) {
  std::scoped_lock const lock(mutex_);
  auto& failures = failures_[name];
  if (failures.empty()) return ncclSuccess;
  auto const result = failures.front();
  failures.erase(failures.begin());
  return result;
}

void FakeNccl::set_async_error(int rank, ncclResult_t result) {
  std::scoped_lock const lock(mutex_);
  async_[rank] = result;
}

std::size_t FakeNccl::live() const {
  std::scoped_lock const lock(mutex_);
  return comms_.size();
}

}  // namespace weft::test
