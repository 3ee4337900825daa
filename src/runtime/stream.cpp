#include "weft/stream.hpp"

#include <utility>

#include "runtime/cpu_stream.hpp"
#include "weft/error.hpp"

namespace weft {

Stream Stream::cpu(StreamOptions const& options) {
  return Stream(std::make_shared<CpuStream>(options));
}

void Stream::enqueue(std::function<void()> task) {
  impl_->enqueue(std::move(task));
}

void Stream::synchronize() {
  if (impl_->on_worker()) {
    throw Error(ErrorCode::invalid_argument,
                "Stream::synchronize: called from a task of this stream, which would wait for itself");
  }
  impl_->synchronize();
}

Device Stream::device() const noexcept {
  return impl_->device();
}

}  // namespace weft
