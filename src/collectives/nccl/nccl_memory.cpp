// Memory for collectives, allocated by NCCL and registered as a window of all ranks where NCCL supports that.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "collectives/nccl/nccl_backend.hpp"
#include "core/log.hpp"
#include "runtime/cuda/check.hpp"
#include "weft/memory.hpp"

namespace weft::nccl {
namespace {

/// Collective: the ranks that pass `yes` as false.
std::vector<int> ranks_that_say_no(Bootstrap& bootstrap, bool yes) {
  auto const mine = static_cast<std::byte>(yes ? 1 : 0);
  auto const all = bootstrap.all_gather(std::span(&mine, 1));
  std::vector<int> no;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank] == std::byte{0}) no.push_back(static_cast<int>(rank));
  }
  return no;
}

/// Within a Use. Waits until NCCL has finished: only then may the memory be freed.
void deregister(NcclCommunicator& communicator, ncclComm_t handle, ncclWindow_t window) {
  auto const result = communicator.nccl().comm_window_deregister(handle, window);
  communicator.settle_late(result, "ncclCommWindowDeregister");
}

/// NCCL's memory, with the communicator that may have a window on it.
class Memory {
 public:
  Memory(std::shared_ptr<NcclCommunicator> communicator, void* data, MemoryCharge charge) noexcept
      : communicator_(std::move(communicator)), data_(data), charge_(std::move(charge)) {}
  Memory(Memory const&) = delete;
  Memory& operator=(Memory const&) = delete;
  /// Waits for the GPU, as cudaFree does, because work on it may still use the memory.
  ~Memory() {
    auto const& libraries = communicator_->libraries();
    auto const& nccl = communicator_->nccl();
    try {
      cuda::DeviceGuard const guard(libraries.device, *libraries.cuda);
      cuda::check(*libraries.cuda, libraries.cuda->device_synchronize(), "cudaDeviceSynchronize");
      if (window != nullptr && communicator_->is_stopped()) {
        communicator_->wait_until_told();
      } else if (window != nullptr) {
        NcclCommunicator::Use const use(*communicator_);
        deregister(*communicator_, use.handle(), window);
      }
      check(nccl, nccl.mem_free(data_), "ncclMemFree");
    } catch (std::exception const& error) {
      log(LogLevel::warn, fmt::format("device memory of a communicator was not freed: {}", error.what()));
    }
  }

  ncclWindow_t window = nullptr;

 private:
  std::shared_ptr<NcclCommunicator> communicator_;
  void* data_;
  MemoryCharge charge_;
};

}  // namespace

// While the registration is unfinished NCCL takes no other call, and it still writes the window when it ends.
void NcclBackend::end_unfinished(std::string const& why) {
  watch_->fail(ErrorCode::timeout, fmt::format("rank {}: memory on {}: {}", rank_, to_string(device_), why));
  communicator_->abort_briefly();
}

// The exception frees the caller's memory though it may have a window, so NCCL is told first: see ~Memory.
void NcclBackend::throw_if_stopped() {
  try {
    watch_->throw_if_failed();
  } catch (Error const&) {
    communicator_->stop();
    communicator_->wait_until_told();
    throw;
  }
}

ncclWindow_t NcclBackend::register_window(void* memory, std::size_t bytes, Bootstrap& bootstrap) {
  auto const& nccl = communicator_->nccl();
  auto const window = std::make_shared<ncclWindow_t>(nullptr);
  std::string why = "NCCL gave none";
  bool there = false;
  try {
    NcclCommunicator::Use const use(*communicator_);
    auto const result = nccl.comm_window_register(use.handle(), memory, bytes, window.get(), NCCL_WIN_COLL_SYMMETRIC);
    communicator_->settle_late_for_others(result, "ncclCommWindowRegister", window);
    there = *window != nullptr;
  } catch (Error const& error) {
    why = error.what();
    if (error.code() == ErrorCode::timeout) end_unfinished(why);
  }
  auto const without = ranks_that_say_no(bootstrap, there);
  if (without.empty()) return *window;
  throw_if_stopped();
  if (there) {
    NcclCommunicator::Use const use(*communicator_);
    deregister(*communicator_, use.handle(), *window);
    why = "not there";
  }
  if (why_not_symmetric_.empty()) {
    why_not_symmetric_ = fmt::format(
        "rank {}: no symmetric window: {} (NCCL {}); it needs GPUs that reach one another by "
        "NVLink or PCIe",
        without.front(), why, describe_version(communicator_->libraries().nccl->version));
    log(explains_ ? LogLevel::warn : LogLevel::info, why_not_symmetric_);
  }
  return nullptr;
}

std::shared_ptr<void> NcclBackend::allocate(Call const& call, Bootstrap& bootstrap) {
  watch_->throw_if_failed();
  auto const bytes = (std::max<std::size_t>(call.bytes(), 1) + NCCL_WIN_REQUIRED_ALIGNMENT - 1) /
                     NCCL_WIN_REQUIRED_ALIGNMENT * NCCL_WIN_REQUIRED_ALIGNMENT;
  auto const& nccl = communicator_->nccl();
  cuda::DeviceGuard const guard(device_.index, cuda());
  std::shared_ptr<Memory> owner;
  void* data = nullptr;
  std::string why;
  try {
    MemoryCharge charge(MemoryScope::current(MemoryKind::communication), call.bytes());
    check(nccl, nccl.mem_alloc(&data, bytes), "ncclMemAlloc");
    owner = std::make_shared<Memory>(communicator_, data, std::move(charge));
    auto const* const stream = cuda::as_cuda(own_stream_);
    cuda::check(cuda(), cuda().memset_async(data, 0, bytes, stream->handle()), "cudaMemsetAsync");
    cuda::check(cuda(), cuda().stream_synchronize(stream->handle()), "cudaStreamSynchronize");
  } catch (Error const& error) {
    owner = nullptr;
    why = error.what();
  }
  auto const lacking = ranks_that_say_no(bootstrap, owner != nullptr);
  if (!lacking.empty()) {
    throw Error(ErrorCode::out_of_memory,
                fmt::format("{} on {}: rank {} cannot have {} bytes{}{}; free memory or ask for less", describe(call),
                            to_string(device_), lacking.front(), bytes, why.empty() ? "" : ": ", why));
  }
  owner->window = register_window(data, bytes, bootstrap);
  return {std::move(owner), data};
}

}  // namespace weft::nccl
