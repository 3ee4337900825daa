#include "collectives/staged/lanes.hpp"

#include <chrono>
#include <thread>

#include "runtime/cuda/check.hpp"
#include "weft/error.hpp"

namespace weft::staged {
namespace {

std::shared_ptr<cuda::CudaStream> make_lane(Options const& options) {
  return std::make_shared<cuda::CudaStream>(cuda::StreamOptions{.device = options.device, .high_priority = true},
                                            *options.cuda);
}

void require_stream_values(Lanes const& lanes) {
  auto const status = lanes.cuda.stream_write_value(lanes.in->handle(), lanes.signals.landed(), 0);
  if (status == cudaErrorNotSupported) {
    throw Error(ErrorCode::unsupported,
                "through host memory device memory needs streams that wait for the host (cuStreamWaitValue32), which "
                "this driver does not have: update it to one of CUDA 12, or use NCCL");
  }
  cuda::check(lanes.cuda, status, "cuStreamWriteValue32");
}

}  // namespace

Stream high_priority_stream(Options const& options) {
  return Stream(make_lane(options));
}

Lanes::Lanes(Options const& options)
    : cuda(*options.cuda),
      signals(options.device, cuda),
      pool(options.device, cuda),
      events(options.device, cudaEventDisableTiming, cuda),
      works(options.device, cuda),
      begun(events.take()),
      out(make_lane(options)),
      in(make_lane(options)),
      among(options.inside ? make_lane(options) : nullptr) {
  for (auto* const of : {&copied, &landed, &ready, &back}) {
    for (auto& event : *of) event = events.take();
  }
  require_stream_values(*this);
}

// The copies of calls that failed may still be under way.
Lanes::~Lanes() {
  for (auto const& lane : {among, out, in}) {
    if (lane) static_cast<void>(cuda.stream_synchronize(lane->handle()));
  }
}

void Lanes::record(Event const& event, cuda::CudaStream const& on) const {
  cuda::DefaultStreamGuard const guard(on);
  cuda::check(cuda, cuda.event_record(event.event(), on.handle()), "cudaEventRecord");
}

void Lanes::wait(cuda::CudaStream const& on, Event const& event) const {
  cuda::DefaultStreamGuard const guard(on);
  cuda::check(cuda, cuda.stream_wait_event(on.handle(), event.event(), 0), "cudaStreamWaitEvent");
}

bool Lanes::come_to_rest() const noexcept {
  using Clock = std::chrono::steady_clock;
  auto const deadline = Clock::now() + std::chrono::seconds(1);
  try {
    for (auto const& lane : {out, in, among}) {
      if (!lane) continue;
      record(begun, *lane);
      while (!cuda::is_reached(cuda, begun.event())) {
        if (Clock::now() >= deadline) return false;
        std::this_thread::sleep_for(std::chrono::microseconds(50));
      }
    }
  } catch (Error const&) {
    return false;
  }
  return true;
}

void Lanes::copy(Copies const& copies, cudaMemcpyKind kind, cuda::CudaStream const& on) const {
  for (auto const& [to, from, width, rows, to_pitch, from_pitch] : copies) {
    bool const flat = rows == 1 || (to_pitch == width && from_pitch == width);
    auto const status = flat ? cuda.memcpy_async(to, from, rows * width, kind, on.handle())
                             : cuda.memcpy_2d_async(to, to_pitch, from, from_pitch, width, rows, kind, on.handle());
    cuda::check(cuda, status, flat ? "cudaMemcpyAsync" : "cudaMemcpy2DAsync");
  }
}

void Lanes::begin(cuda::CudaStream const& on, std::uint32_t first, bool inside) const {
  record(begun, on);
  auto const follow = [&](cuda::CudaStream const& lane) {
    wait(lane, begun);
    for (auto const& event : landed) wait(lane, event);
  };
  follow(*out);
  if (!inside) return;
  follow(*among);
  cuda::check(cuda, cuda.stream_write_value(among->handle(), signals.reached(), first), "cuStreamWriteValue32");
}

void Lanes::go_out(std::size_t step, std::uint32_t number, Copies const& copies) const {
  auto const slot = step % Staging::kSlots;
  if (step >= Staging::kSlots) wait(*out, landed[slot]);
  copy(copies, cudaMemcpyDeviceToHost, *out);
  record(copied[slot], *out);
  cuda::check(cuda, cuda.stream_write_value(out->handle(), signals.copied(), number), "cuStreamWriteValue32");
}

// The signal alone would imply that the copy out is done. After a failure, though, it is set early, so the copy in also
// waits for the copy out by an event: the buffers belong to the call only once its stream has come to it.
void Lanes::come_in(std::size_t step, std::uint32_t number, Copies const& copies) const {
  auto const slot = step % Staging::kSlots;
  wait(*in, copied[slot]);
  cuda::check(cuda, cuda.stream_wait_value(in->handle(), signals.exchanged(), number), "cuStreamWaitValue32");
  copy(copies, cudaMemcpyHostToDevice, *in);
}

void Lanes::land(std::size_t step, std::uint32_t number, cuda::CudaStream const& on) const {
  record(landed[step % Staging::kSlots], on);
  cuda::check(cuda, cuda.stream_write_value(on.handle(), signals.landed(), number), "cuStreamWriteValue32");
}

}  // namespace weft::staged
