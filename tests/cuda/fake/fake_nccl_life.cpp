// How FakeNccl's communicators come, divide, go on and end.
#include "cuda/fake/fake_nccl_calls.hpp"

#include <algorithm>
#include <cstring>

namespace weft::test {

ncclResult_t FakeNcclCalls::begin(char const* name, void const* on, std::size_t bytes) {
  gpu().record(name, on, bytes, depth);
  return fake().take_failure(name);
}

std::shared_ptr<FakeNcclCalls::Comm> FakeNcclCalls::comm_of(ncclComm_t handle, char const* name) {
  std::scoped_lock const lock(fake().mutex_);
  auto const found = fake().comms_.find(handle);
  if (found != fake().comms_.end()) return found->second;
  return violation(std::string(name) + " of a communicator that is not there");
}

ncclResult_t FakeNcclCalls::go_on(Comm& comm) {
  comm.polls_left = fake().polls;
  return ncclInProgress;
}

bool FakeNcclCalls::is_free(Comm const& comm, char const* name) {
  if (comm.polls_left == 0) return true;
  violation(std::string(name) + " before the communicator was through with the call before");
  return false;
}

ncclComm_t FakeNcclCalls::add(std::shared_ptr<Comm> comm) {
  comm->polls_left = fake().polls;
  auto const handle = reinterpret_cast<ncclComm_t>(comm.get());
  std::scoped_lock const lock(fake().mutex_);
  fake().comms_[handle] = std::move(comm);
  return handle;
}

ncclResult_t FakeNcclCalls::get_version(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

ncclResult_t FakeNcclCalls::get_unique_id(ncclUniqueId* id) {
  auto const failure = begin("ncclGetUniqueId", nullptr);
  std::scoped_lock const lock(fake().mutex_);
  auto const number = ++fake().ids_;
  std::memcpy(id->internal, &number, sizeof number);
  return failure;
}

char const* FakeNcclCalls::get_error_string(ncclResult_t result) {
  return result == ncclRemoteError ? "remote process exited or there was a network error" : "injected";
}

char const* FakeNcclCalls::get_last_error(ncclComm_t /*comm*/) {
  return "";
}

ncclResult_t FakeNcclCalls::init(ncclComm_t* made, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
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

void FakeNcclCalls::fill_later(Comm& comm, std::function<void()> fill) {
  std::scoped_lock const lock(fake().mutex_);
  comm.fills.push_back(std::move(fill));
}

ncclResult_t FakeNcclCalls::divide(Comm& comm, int color, int key, std::size_t expected, ncclComm_t* made) {
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

std::shared_ptr<FakeNcclCalls::Comm> FakeNcclCalls::join_division(Comm& comm, int color, int key,
                                                                  std::size_t expected) {
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

bool FakeNcclCalls::settle(Comm& child) {
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

bool FakeNcclCalls::is_quiet(Comm const& comm, char const* name) {
  if (!comm.revoked || comm.polls_left == 0) return true;
  gpu().violate(std::string(name) + " of a revoked communicator that has not come to rest");
  return false;
}

ncclResult_t FakeNcclCalls::split(ncclComm_t handle, int color, int key, ncclComm_t* made, ncclConfig_t* /*config*/) {
  auto const failure = begin("ncclCommSplit", handle);
  auto const comm = comm_of(handle, "ncclCommSplit");
  if (failure != ncclSuccess || !comm) return failure != ncclSuccess ? failure : ncclInvalidArgument;
  Inside const inside(*comm, "ncclCommSplit");
  if (!is_quiet(*comm, "ncclCommSplit") || !is_free(*comm, "ncclCommSplit")) return ncclInvalidUsage;
  return divide(*comm, color, key, static_cast<std::size_t>(comm->group->size), made);
}

ncclResult_t FakeNcclCalls::shrink(ncclComm_t handle, int* excluded, int count, ncclComm_t* made,
                                   ncclConfig_t* /*config*/, int flags) {
  auto const failure = begin(flags == NCCL_SHRINK_ABORT ? "ncclCommShrink(abort)" : "ncclCommShrink", handle);
  auto const comm = comm_of(handle, "ncclCommShrink");
  if (failure != ncclSuccess || !comm) return failure != ncclSuccess ? failure : ncclInvalidArgument;
  if (count <= 0 || std::count(excluded, excluded + count, comm->rank) != 0) return ncclInvalidArgument;
  Inside const inside(*comm, "ncclCommShrink");
  if (flags == NCCL_SHRINK_ABORT) comm->stopped = true;
  if (flags != NCCL_SHRINK_ABORT && !is_quiet(*comm, "ncclCommShrink")) return ncclInvalidUsage;
  return divide(*comm, 0, comm->rank, static_cast<std::size_t>(comm->group->size - count), made);
}

ncclResult_t FakeNcclCalls::revoke(ncclComm_t handle, int flags) {
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

ncclResult_t FakeNcclCalls::finalize(ncclComm_t handle) {
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

ncclResult_t FakeNcclCalls::destroy(ncclComm_t handle) {
  return end("ncclCommDestroy", handle);
}

ncclResult_t FakeNcclCalls::abort(ncclComm_t handle) {
  while (fake().abort_hangs) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return end("ncclCommAbort", handle);
}

ncclResult_t FakeNcclCalls::end(char const* name, ncclComm_t handle) {
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

ncclResult_t FakeNcclCalls::get_async_error(ncclComm_t handle, ncclResult_t* state) {
  auto const comm = comm_of(handle, "ncclCommGetAsyncError");
  if (!comm) return ncclInvalidArgument;
  Inside const inside(*comm, "ncclCommGetAsyncError");
  if (fake().answers_slowly) std::this_thread::sleep_for(std::chrono::microseconds(100));
  *state = state_of(*comm);
  return ncclSuccess;
}

bool FakeNcclCalls::is_made(Comm& comm) {
  if (comm.failed != ncclSuccess) return true;
  std::vector<std::shared_ptr<Comm>> making;
  {
    std::scoped_lock const lock(fake().mutex_);
    making = comm.making;
  }
  return std::all_of(making.begin(), making.end(), [](auto const& child) { return settle(*child); });
}

ncclResult_t FakeNcclCalls::state_of(Comm& comm) {
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

}  // namespace weft::test
