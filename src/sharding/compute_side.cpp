#include "sharding/compute_side.hpp"

#include <cstring>
#include <exception>

#include "collectives/device_access.hpp"
#include "runtime/stream_impl.hpp"
#include "sharding/flat_memory.hpp"

namespace weft {

void throw_if_failed(Communicator const& communicator) {
  DeviceBackend const* const backend = DeviceAccess::backend(communicator);
  if (backend == nullptr) return;
  if (auto const failure = backend->failure()) std::rethrow_exception(failure);
}

void ComputeSide::wait_for(Work const& work, Communicator const& communicator) const {
  if (!stream_) return work.wait();
  work.wait_on(*stream_);
  throw_if_failed(communicator);
}

void ComputeSide::wait_for(Event const& event) const {
  if (stream_) {
    event.wait_on(*stream_);
  } else {
    event.synchronize();
  }
}

void ComputeSide::lead(Stream const& stream) const {
  if (stream_) weft::follow(stream, *stream_);
}

void ComputeSide::follow(Stream const& stream) const {
  if (stream_) return weft::follow(*stream_, stream);
  Stream(stream).synchronize();
}

void ComputeSide::zero(BufferView const& view) const {
  if (view.count == 0) return;
  if (stream_) return stream_->impl().fill(view.data, 0, view.bytes());
  std::memset(view.data, 0, view.bytes());
}

void ComputeSide::overwrite(BufferView const& view) const {
  if (view.count == 0) return;
  if (stream_) return stream_->impl().fill(view.data, kNanByte, view.bytes());
  weft::overwrite(view);
}

}  // namespace weft
