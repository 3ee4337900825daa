#include "bucketing/device_scale.hpp"

#ifdef WEFT_CUDA_TRAINING
#include "runtime/stream_impl.hpp"
#include "weft/cuda.hpp"
#endif
#include "weft/error.hpp"

namespace weft {

#ifdef WEFT_CUDA_TRAINING
class DeviceScale::Impl {
 public:
  void scale(BufferView const& memory, float factor, Stream const& stream) {
    if (factor_.data() == nullptr) factor_ = stream.impl().allocate(1, DataType::f32);
    if (factor != host_) {
      Stream(stream).synchronize();  // the old factor may still be being copied
      host_ = factor;
      stream.impl().copy(factor_.data(), &host_, sizeof(host_));
    }
    auto list = lists_.find(memory.data);
    if (list == lists_.end()) list = lists_.emplace(memory.data, cuda::GradientList({&memory, 1})).first;
    list->second.scale(static_cast<float const*>(factor_.data()), stream);
  }
  void forget() { lists_.clear(); }

 private:
  float host_ = 0;  ///< factor_'s value once the stream has come to its copy
  Buffer factor_;
  std::map<void*, cuda::GradientList> lists_;
};
#else
class DeviceScale::Impl {
 public:
  void scale(BufferView const& /*memory*/, float /*factor*/, Stream const& /*stream*/) {
    throw Error(ErrorCode::unsupported, "this library was built without CUDA");
  }
  void forget() {}
};
#endif

DeviceScale::DeviceScale() : impl_(std::make_unique<Impl>()) {}
DeviceScale::~DeviceScale() = default;

void DeviceScale::scale(BufferView const& memory, float factor, Stream const& stream) {
  impl_->scale(memory, factor, stream);
}

void DeviceScale::forget() {
  impl_->forget();
}

}  // namespace weft
