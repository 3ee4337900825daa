#include "collectives/staged/staging.hpp"

#include "collectives/communicator_bootstrap.hpp"
#include "collectives/outcome.hpp"
#include "runtime/cuda/check.hpp"

namespace weft::staged {

Staging::Staging(Communicator& host, std::size_t region_bytes, cuda::CudaFunctions const& cuda)
    : region_bytes_(region_bytes), cuda_(cuda), memory_(host.allocate(kSlots * 2 * region_bytes, DataType::u8)) {
  Outcome mine;
  bool registered = false;
  try {
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
    if (registered) static_cast<void>(cuda_.host_unregister(memory_.data()));
    throw;
  }
}

// Fails only where the context is gone.
Staging::~Staging() {
  static_cast<void>(cuda_.host_unregister(memory_.data()));
}

}  // namespace weft::staged
