// The table of NCCL's functions that FakeNccl stands behind.
#include "cuda/fake/fake_nccl.hpp"

#include "collectives/device_access.hpp"
#include "collectives/nccl/nccl_factory.hpp"
#include "cuda/fake/fake_nccl_calls.hpp"

namespace weft::test {
namespace {

std::atomic<FakeNccl*> the_nccl{nullptr};

}  // namespace

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
