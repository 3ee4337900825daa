#pragma once

#include <utility>

#include <ATen/record_function.h>

#include "overlap_recorder.hpp"
#include "process_group.hpp"
#include "weft/error.hpp"

namespace weft::torch_backend {

template <typename Issue, typename Land>
ProcessGroupWeft::WorkHandle ProcessGroupWeft::run(Operation const& what, How const& how, at::TensorList inputs,
                                                   at::TensorList results, Issue&& issue, Land&& land) {
  std::lock_guard const lock(calls_mutex_);
  auto& communicator = this->communicator(what);
  auto options = collective_options(how);
  ++sequence_;
  // What torch waits for at once it wants no Work of, unless the profiler is to see one.
  auto work = how.async || at::hasCallbacks() ? make_work(what, inputs, results) : nullptr;
  try {
    OverlapRecorder::Watch watch(overlap_recorder(), what.name, inputs, results, options.stream);
    auto core = issue(communicator, options);
    if (coalesced_) return coalesced_->add(inputs, results, std::forward<Land>(land));
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
  return run(what, how, inputs, results, std::forward<Issue>(issue), [] {});
}

}  // namespace weft::torch_backend
