#if WEFT_TORCH_CUDA_TRAINING
#include "gpu_gradients.hpp"

#include <algorithm>
#include <list>
#include <memory>
#include <mutex>

#include <ATen/ops/from_blob.h>
#include <c10/util/Exception.h>

#include "device.hpp"
#include "gradient_calls.hpp"
#include "weft/cuda.hpp"
#include "weft/cuda_graph.hpp"

namespace weft::torch_backend {
namespace {

/// The most lists to keep besides those that CUDA graphs use; a program has them for its optimizers and for clipping.
constexpr std::size_t kMostLists = 1024;

/// Keeps cuda::GradientLists by stream and by their gradients' sizes; the gradients themselves move from step to step.
class Lists {
 public:
  /// use(list): threads may have one stream, and so one list, whose tables and results are theirs in turn.
  template <typename Use>
  auto with(std::vector<BufferView> const& gradients, Stream const& stream, Use const& use) {
    std::lock_guard const lock(mutex_);
    return use(of(gradients, stream));
  }

 private:
  std::shared_ptr<cuda::GradientList> of(std::vector<BufferView> const& gradients, Stream const& stream) {
    Key key{gradients.front().device.index, cuda::handle_of(stream), {}};
    for (auto const& gradient : gradients) key.counts.push_back(gradient.count);
    bool const captured = cuda::is_capturing(stream);
    auto found = std::ranges::find_if(lists_, [&](Entry const& entry) { return entry.key == key; });
    if (found == lists_.end() && captured) found = move_to(key);
    if (found == lists_.end()) {
      TORCH_CHECK(!captured,
                  "weft: gradients of these sizes are measured for the first time, which allocates and cannot "
                  "be captured in a CUDA graph; make a step before the capture");
      forget_one();
      lists_.push_front({std::move(key), std::make_shared<cuda::GradientList>(gradients), captured});
      return lists_.front().list;
    }
    found->captured = found->captured || captured;
    lists_.splice(lists_.begin(), lists_, found);
    found->list->replace(gradients, stream);
    return found->list;
  }

  struct Key {
    int device;
    cuda::StreamHandle stream;
    std::vector<std::size_t> counts;

    bool operator==(Key const&) const = default;
  };
  struct Entry {
    Key key;
    std::shared_ptr<cuda::GradientList> list;
    bool captured;  // a graph may read its tables as long as the process lives
  };

  /// Graphs are captured on their own streams, so the list that earlier steps have used is moved to the graph's stream.
  std::list<Entry>::iterator move_to(Key const& key) {
    auto const found = std::ranges::find_if(lists_, [&](Entry const& entry) {
      return !entry.captured && entry.key.device == key.device && entry.key.counts == key.counts;
    });
    if (found != lists_.end()) found->key.stream = key.stream;
    return found;
  }
  /// The one that has not been used for the longest time.
  void forget_one() {
    auto const captured = static_cast<std::size_t>(std::ranges::count_if(lists_, &Entry::captured));
    if (lists_.size() - captured < kMostLists) return;
    auto const last = std::find_if(lists_.rbegin(), lists_.rend(), [](Entry const& entry) { return !entry.captured; });
    lists_.erase(std::next(last).base());
  }

  std::mutex mutex_;
  std::list<Entry> lists_;  // the most recently used one first
};

Lists& lists() {
  static auto* const all = new Lists;  // not destroyed: CUDA may be gone by then
  return *all;
}

/// A tensor over one f32 of a list; it keeps the list alive.
at::Tensor number_of(std::shared_ptr<cuda::GradientList> const& list, float const* memory, c10::Device device) {
  return at::for_blob(const_cast<float*>(memory), {})
      .deleter([list](void*) {})
      .options(at::TensorOptions(at::kFloat).device(device))
      .target_device(device)
      .make_tensor();
}

BufferView flag_on_gpu(at::Tensor const& found_inf, c10::Device device, char const* call) {
  return {number_on_gpu(found_inf, device, call, "found_inf"), 1, DataType::f32, weft_device(device)};
}

std::vector<BufferView> views_on_gpu(std::vector<at::Tensor> const& gradients, char const* call) {
  std::vector<BufferView> views;
  for (auto const& gradient : gradients) {
    views.push_back(dense_view(gradient, views.size(), call));
    TORCH_CHECK_VALUE(gradient.device() == gradients.front().device(), "weft: ", call, ": gradient 0 is on ",
                      gradients.front().device(), ", gradient ", views.size() - 1, " on ", gradient.device(),
                      "; pass those of one GPU at a time");
  }
  return views;
}

}  // namespace

float* number_on_gpu(at::Tensor const& one, c10::Device device, char const* call, char const* name) {
  TORCH_CHECK_VALUE(one.numel() == 1 && one.scalar_type() == at::kFloat && one.device() == device, "weft: ", call, ": ",
                    name, " is ", one.scalar_type(), " of shape ", one.sizes(), " on ", one.device(),
                    "; it must be one float32 on ", device, ", where parameters and gradients are");
  return one.mutable_data_ptr<float>();
}

MeasuredOnGpu measure_on_gpu(std::vector<at::Tensor> const& gradients, NormType type,
                             std::optional<at::Tensor> const& inv_scale, double max_norm, at::Tensor const& found_inf,
                             char const* call) {
  auto const device = gradients.at(0).device();
  auto const views = views_on_gpu(gradients, call);
  auto const stream = current_stream(device);
  cuda::GradientList::MeasureOptions const options{
      .type = type,
      .inv_scale = inv_scale ? number_on_gpu(*inv_scale, device, call, "inv_scale") : nullptr,
      .max_norm = max_norm,
      .found_inf = flag_on_gpu(found_inf, device, call)};
  return lists().with(views, stream, [&](std::shared_ptr<cuda::GradientList> const& list) {
    list->measure(options, stream);
    return MeasuredOnGpu{number_of(list, list->norm(), device).clone(), number_of(list, list->clip(), device).clone()};
  });
}

void scale_on_gpu(std::vector<at::Tensor> const& gradients, at::Tensor const& factor,
                  std::optional<at::Tensor> const& found_inf, char const* call) {
  if (gradients.empty()) return;
  auto const device = gradients.front().device();
  auto const views = views_on_gpu(gradients, call);
  auto const stream = current_stream(device);
  auto const* const by = number_on_gpu(factor, device, call, "the factor");
  auto const flag = found_inf ? flag_on_gpu(*found_inf, device, call) : BufferView();
  lists().with(views, stream, [&](std::shared_ptr<cuda::GradientList> const& list) {
    if (found_inf) {
      list->unscale_and_check(by, flag, stream);
    } else {
      list->scale(by, stream);
    }
  });
  for (auto const& gradient : gradients) gradient.unsafeGetTensorImpl()->bump_version();
}

}  // namespace weft::torch_backend
#endif
