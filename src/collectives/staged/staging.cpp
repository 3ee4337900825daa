#include "collectives/staged/staging.hpp"

#include "collectives/communicator_bootstrap.hpp"
#include "collectives/outcome.hpp"
#include "runtime/cuda/check.hpp"

namespace weft::staged {

Staging::Staging(Communicator& host, std::size_t region_bytes, int device, cuda::CudaFunctions const& cuda)
    : region_bytes_(region_bytes),
      device_(device),
      cuda_(cuda),
      memory_(host.allocate(kSlots * 2 * region_bytes, DataType::u8)) {
  Outcome mine;
  bool registered = false;
  try {
    cuda::DeviceGuard const guard(device, cuda);
    cuda::check(cuda, cuda.host_register(memory_.data(), memory_.view().bytes(), cudaHostRegisterPortable),
                "cudaHostRegister");
    registered = true;
  } catch (Error const& error) {
    mine = Outcome::of(error);
  }
  CommunicatorBootstrap ranks(host, nullptr);
  try {
    agree(ranks, mine);
  } catch (...) {
    if (registered) unregister();
    throw;
  }
}

Staging::~Staging() {
  unregister();
}

void Staging::unregister() noexcept {
  try {
    cuda::DeviceGuard const guard(device_, cuda_);
    static_cast<void>(cuda_.host_unregister(memory_.data()));
  } catch (Error const&) {  // the context is gone
  }
}

}  // namespace weft::staged
