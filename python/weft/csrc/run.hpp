#pragma once

#include <type_traits>
#include <utility>

#include <ATen/record_function.h>

#include "gpu_work.hpp"
#include "overlap_recorder.hpp"
#include "process_group.hpp"
#include "weft/error.hpp"

namespace weft::torch_backend {

/// The `land` of calls whose results are in place already.
struct Nothing {
  void operator()() const noexcept {}
};

inline std::nullptr_t landing(Nothing /*land*/) noexcept {
  return nullptr;
}
template <typename Land>
std::function<void()> landing(Land&& land) {
  return std::forward<Land>(land);
}

template <typename Issue, typename Land>
ProcessGroupWeft::WorkHandle ProcessGroupWeft::run(Operation const& what, How const& how, at::TensorList inputs,
                                                   at::TensorList results, Issue&& issue, Land&& land) {
  if (auto const device = gpu_of(inputs, results)) {
    return run_on_gpu(what, how, *device, inputs, results, std::forward<Issue>(issue), std::forward<Land>(land));
  }
  std::lock_guard const lock(calls_mutex_);
  auto& communicator = this->communicator(what);
  auto options = collective_options(coalesced_ ? How{false, how.timeout} : how);
  if (coalesced_) coalesced_->open(communicator, collective_options({true, options_->timeout}), nullptr);
  ++sequence_;
  // If torch waits at once, it needs no Work, unless the profiler is to see one.
  auto work = how.async || at::hasCallbacks() ? make_work(what, inputs, results) : nullptr;
  try {
    OverlapRecorder::Watch watch(overlap_recorder(), what.name, inputs, results, options.stream);
    auto core = issue(communicator, options);
    if (coalesced_) return coalesced_->add(inputs, results, landing(std::forward<Land>(land)));
    watch.issued();
    if (how.async) {
      if (inputs.data() != results.data()) work->keep(inputs);
      complete_later(work, std::move(core), *options.stream, std::forward<Land>(land));
      return work;
    }
  } catch (Error const& error) {
    aftermath_->rethrow(error);
  }
  land();
  if (work) work->finish_inline();
  return work;
}

template <typename Issue>
ProcessGroupWeft::WorkHandle ProcessGroupWeft::run(Operation const& what, How const& how, at::TensorList inputs,
                                                   at::TensorList results, Issue&& issue) {
  return run(what, how, inputs, results, std::forward<Issue>(issue), Nothing{});
}

template <typename Issue, typename Land>
ProcessGroupWeft::WorkHandle ProcessGroupWeft::run_on_gpu(Operation const& what, How const& how, c10::Device device,
                                                          at::TensorList inputs, at::TensorList results, Issue&& issue,
                                                          Land&& land) {
  std::lock_guard const lock(calls_mutex_);
  auto& communicator = this->communicator(what);
  auto call = begin_on_gpu(what, how, device);
  try {
    call.core = issue(communicator, options_on_gpu(call, how));
    if (coalesced_) return coalesced_->add(inputs, results, landing(std::forward<Land>(land)));
    if constexpr (!std::is_same_v<std::decay_t<Land>, Nothing>) {
      OnStream const there(call.on);
      land();
      call.lands = true;
    }
    return end_on_gpu(what, how, std::move(call), inputs, results);
  } catch (Error const& error) {
    aftermath_->rethrow(error);
  }
}

}  // namespace weft::torch_backend
