#include "weft/cuda_graph.hpp"

#include <string>
#include <utility>

#include "runtime/cuda/check.hpp"
#include "runtime/cuda/cuda_stream.hpp"
#include "weft/error.hpp"

namespace weft::cuda {
namespace {

CudaStream const& recordable(Stream const& stream, char const* call) {
  if (CudaStream const* const cuda = as_cuda(stream)) return *cuda;
  throw Error(ErrorCode::invalid_argument, std::string(call) + ": the stream is on " + to_string(stream.device()));
}

/// A capture, and then the graph that it made, which is destroyed with it.
class Captured {
 public:
  /// The mode is thread-local, because other threads of the process may wait for the GPU meanwhile: NCCL's do, and
  /// those that watch over collectives.
  explicit Captured(CudaStream const& stream) : stream_(stream) {
    check(cuda(), cuda().stream_begin_capture(stream.handle(), cudaStreamCaptureModeThreadLocal),
          "cudaStreamBeginCapture");
  }
  ~Captured() {
    // A failure meanwhile has broken the capture too; its error is cleared, or else the next launch would report it.
    if (!ended_ && cuda().stream_end_capture(stream_.handle(), &graph_) != cudaSuccess) cuda().get_last_error();
    if (graph_ != nullptr) static_cast<void>(cuda().graph_destroy(graph_));
  }
  Captured(Captured const&) = delete;
  Captured& operator=(Captured const&) = delete;

  [[nodiscard]] cudaGraph_t end() {
    ended_ = true;
    check(cuda(), cuda().stream_end_capture(stream_.handle(), &graph_), "cudaStreamEndCapture");
    return graph_;
  }

 private:
  [[nodiscard]] CudaFunctions const& cuda() const { return stream_.cuda(); }

  CudaStream const& stream_;
  cudaGraph_t graph_ = nullptr;
  bool ended_ = false;
};

}  // namespace

class Graph::Impl {
 public:
  Impl(CudaStream const& stream, cudaGraph_t graph) : cuda_(stream.cuda()), device_(stream.device()) {
    check(cuda_, cuda_.graph_instantiate(&graph_, graph), "cudaGraphInstantiate");
  }
  ~Impl() { static_cast<void>(cuda_.graph_exec_destroy(graph_)); }  // launches under way still run
  Impl(Impl const&) = delete;
  Impl& operator=(Impl const&) = delete;

  void launch(CudaStream const& stream) const {
    if (stream.device() != device_) {
      throw Error(ErrorCode::invalid_argument, "cuda::Graph::launch: the stream is on " + to_string(stream.device()) +
                                                   ", the graph of " + to_string(device_));
    }
    DeviceGuard const guard(device_.index, cuda_);
    check(cuda_, cuda_.graph_launch(graph_, stream.handle()), "cudaGraphLaunch");
  }

 private:
  CudaFunctions const& cuda_;
  Device device_;
  cudaGraphExec_t graph_ = nullptr;
};

Graph Graph::record(Stream const& stream, std::function<void()> const& enqueue) {
  auto const& on = recordable(stream, "cuda::Graph::record");
  DeviceGuard const guard(on.device().index, on.cuda());
  if (is_capturing(stream)) {
    throw Error(ErrorCode::invalid_argument, "cuda::Graph::record: the stream is being recorded already");
  }
  Captured captured(on);
  enqueue();
  return Graph(std::make_shared<Impl const>(on, captured.end()));
}

bool is_capturing(Stream const& stream) {
  CudaStream const* const on = as_cuda(stream);
  if (on == nullptr) return false;
  auto status = cudaStreamCaptureStatusNone;
  unsigned long long id = 0;
  check(on->cuda(), on->cuda().stream_capture(on->handle(), &status, &id), "cudaStreamGetCaptureInfo");
  return status != cudaStreamCaptureStatusNone;
}

void Graph::launch(Stream const& stream) const {
  impl_->launch(recordable(stream, "cuda::Graph::launch"));
}

}  // namespace weft::cuda
