#include "collectives/communicator_impl.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <span>
#include <thread>
#include <utility>

#include "collectives/emulated_link.hpp"
#include "runtime/deadline.hpp"
#include "runtime/work_state.hpp"
#include "weft/error.hpp"

namespace weft {

Communicator::Impl::Impl(std::unique_ptr<Backend> backend, std::shared_ptr<FlightRecorder> recorder, int rank, int size,
                         CommunicatorOptions const& with)
    : validator{rank, size, with.name, &issued_, &transfers_},
      options(with),
      backend_(std::move(backend)),
      recorder_(std::move(recorder)),
      sent_(static_cast<std::size_t>(size)),
      received_(static_cast<std::size_t>(size)) {}

Communicator::Impl::~Impl() {
  if (process_ != process_number()) {
    // In a forked child the parent's threads do not exist, and its peers must not be told that it left: leave all as
    // is.
    static_cast<void>(device_.release());
    static_cast<void>(backend_.release());
    new auto(std::move(recorder_));
    new auto(std::move(group_));
    new auto(std::move(fusion_));
    return;
  }
  device_.reset();  // it asks the others' back ends, which wait below
  if (group_) drop_group();
  finish_calls();
}

void Communicator::Impl::finish_calls() noexcept {
  if (fusion_) fusion_->launch();
  await_turn(issued_.load(std::memory_order_relaxed));
  for (auto left = turn_->in_flight.load(); left > 0; left = turn_->in_flight.load())
    wait_while(turn_->in_flight, left);
}

void Communicator::Impl::refuse_second_thread(weft::Operation operation) const {
  validator.reject(operation,
                   "another thread of this rank is in a call on this communicator; one thread at a time calls: take "
                   "turns, or give each thread its duplicate()");
}

void Communicator::Impl::refuse_child(char const* function) const {
  validator.reject(
      function,
      "this process was forked from the one whose communicator this is, whose ranks would mix up its calls "
      "with their own; make one of its own for it");
}

void Communicator::Impl::set_options(Call& call, CollectiveOptions const& how) const {
  validator.check_options(call, how);
  if (how.tag != 0) validator.set_tag(call, how.tag);
  call.feedback = how.feedback;
  call.timeout = timeout_of(how);
}

Work Communicator::Impl::run_later(Call&& call, Operation operation, CollectiveOptions const& how) {
  if (busy_.load(std::memory_order_relaxed)) refuse_second_thread(call.contract.operation);
  // A barrier has no buffers: its stream says which device it is on.
  if (call.contract.operation == weft::Operation::barrier) {
    auto const& stream = how.stream ? how.stream : group_ ? group_->options().stream : how.stream;
    if (stream) call.device = stream->device();
  }
  set_options(call, how);
  if (group_) {
    check_in_group(call, how);
    return group_->add(std::move(call), operation, how);
  }
  if (!call.is_on_host()) return run_on_device(std::move(call), how);
  if (fusion_) {
    if (how.stream && fusion_->holds_back(call, *how.stream)) {
      call.on_stream = true;
      return fusion_->add(std::move(call), operation, *how.stream);
    }
    fusion_->flush_then([&] { call.sequence = next_call(); });
  } else {
    call.sequence = next_call();
  }
  if (!how.stream) {
    run_here(call, operation);
    return {};
  }
  call.on_stream = true;
  call.own_parts();
  turn_->asynchronous.store(true, std::memory_order_relaxed);
  recorder_->enqueue(call);
  ObservedCall const observed(call.contract.operation,
                              weft::bytes_of_all(call.contract.operation, call.bytes(), validator.size));
  return enqueue_work(
      *how.stream, [this, turn = turn_, call, operation, observed, maker = std::this_thread::get_id()]() mutable {
        call.waited_for = std::this_thread::get_id() == maker;
        observed.run([&] { execute(call, [&](Call const& timed) { (backend_.get()->*operation)(timed); }); });
      });
}

std::chrono::milliseconds Communicator::Impl::timeout_of(CollectiveOptions const& how) const {
  if (how.timeout) return *how.timeout;
  return group_ ? group_->options().timeout.value_or(options.config->timeout) : options.config->timeout;
}

void Communicator::Impl::check_in_group(Call const& call, CollectiveOptions const& how) const {
  if (how.stream && how.stream != group_->options().stream) {
    validator.reject(call.contract.operation,
                     "a call in a group goes to the group's stream; give the stream to the Group");
  }
  if (group_->has_calls_on(call.device)) return;  // checked with the first of them
  validator.check_options(call, {.stream = group_->options().stream});
  if (group_->is_of(call.device)) return;
  validator.reject(call.contract.operation,
                   fmt::format("its memory is on {}, that of the group's other calls on {}; use a group for each",
                               to_string(call.device), to_string(group_->device())));
}

void Communicator::Impl::issue(MergedCall& calls) {
  auto& call = calls.call();
  call.sequence = next_call();
  if (call.on_stream) turn_->asynchronous.store(true, std::memory_order_relaxed);
  if (turn_->asynchronous.load(std::memory_order_relaxed)) recorder_->enqueue(call);
}

void Communicator::Impl::run_merged(MergedCall& calls) {
  execute(calls.call(), [&](Call const& timed) {
    calls.call().met = timed.met;
    calls.run(*backend_);
  });
}

void Communicator::Impl::launch_fused(MergedCall&& calls, Stream::Impl& stream, std::shared_ptr<Work::State> state) {
  issue(calls);
  ObservedCall const observed(calls.call().contract.operation, bytes_of_all(calls));
  auto const shared = std::make_shared<MergedCall>(std::move(calls));
  enqueue_work(
      stream, [this, turn = turn_, shared, observed] { observed.run([&] { run_merged(*shared); }); }, std::move(state));
}

void Communicator::Impl::fuse(Stream const& stream, std::size_t bytes) {
  check_no_group("fuse");
  validator.check_options("fuse", {.stream = stream});
  if (!fusion_) {
    fusion_ =
        std::make_shared<Fusion>(validator.size, backend_->merge_limits(),
                                 [this](MergedCall&& calls, Stream::Impl& on, std::shared_ptr<Work::State> state) {
                                   launch_fused(std::move(calls), on, std::move(state));
                                 });
    merging_ = true;
  }
  fusion_->set(stream, bytes);
}

void Communicator::Impl::check_no_group(char const* function) const {
  if (group_) validator.reject(function, "a group is open on this communicator; end it first");
}

void Communicator::Impl::open_group(CollectiveOptions const& how) {
  check_no_group("Group");
  validator.check_options("Group", how, how.stream ? how.stream->device() : Device{});
  if (how.tag != 0) validator.reject("Group", "a group has no tag; give tags to its calls");
  group_ = OpenGroup::create(how, backend_->merge_limits(), validator.rank, validator.size, last_group_calls_);
  merging_ = true;
}

void Communicator::Impl::drop_group() noexcept {
  auto const group = std::exchange(group_, nullptr);
  merging_ = fusion_ != nullptr;
  if (!group) return;
  group->close();
  group->state()->complete(std::make_exception_ptr(
      Error(ErrorCode::aborted, validator.explain("Group", "dropped before end(); none of its calls was made"))));
}

void Communicator::Impl::check_group(OpenGroup& group) const {
  auto why = group.own_messages_differ();
  if (why.empty()) why = group.dependence();
  if (why.empty()) return;
  Error const error(ErrorCode::invalid_argument, validator.explain("Group::end", why));
  group.state()->complete(std::make_exception_ptr(error));
  throw error;
}

Work Communicator::Impl::end_group() {
  auto const group = std::exchange(group_, nullptr);
  merging_ = fusion_ != nullptr;
  group->close();
  last_group_calls_ = group->size();
  check_group(*group);
  if (group->device().type != DeviceType::cpu) return end_device_group(*group);
  auto const on_stream = group->options().stream.has_value();
  auto const issue_all = [&] {
    for (auto& calls : group->calls()) {
      calls.call().on_stream = on_stream;
      issue(calls);
    }
  };
  fusion_ ? fusion_->flush_then(issue_all) : issue_all();
  if (!group->messages().empty()) group->transfer().sequence = ++transfers_;
  for (auto& message : group->messages()) {
    message = numbered(message);
  }
  group->state()->enqueue();
  auto const& state = group->state();
  if (on_stream) {
    if (!group->messages().empty()) turn_->in_flight.fetch_add(1);
    group->options().stream->impl().launch_deferred();
    enqueue_work(
        group->options().stream->impl(),
        [this, turn = turn_, group, observed = observe(*group), maker = std::this_thread::get_id()] {
          for (auto& calls : group->calls()) calls.call().waited_for = std::this_thread::get_id() == maker;
          observed.run([&] { run_group(*group); });
        },
        state);
    return Work{state};
  }
  state->start();
  std::exception_ptr error;
  try {
    run_group(*group);
  } catch (...) {
    error = std::current_exception();
  }
  state->complete(error);
  if (error) std::rethrow_exception(error);
  return Work{state};
}

/// Observes the whole group as one call, under the operation of its first calls.
ObservedCall Communicator::Impl::observe(OpenGroup& group) const {
  if (group.calls().empty()) return {};
  std::size_t bytes = 0;
  for (auto const& calls : group.calls()) bytes += bytes_of_all(calls);
  return {group.calls().front().call().contract.operation, bytes};
}

std::size_t Communicator::Impl::bytes_of_all(MergedCall const& calls) const noexcept {
  Contract const& contract = calls.call().contract;
  auto const elements = contract.group.calls > 0 ? contract.group.elements : contract.count;
  return weft::bytes_of_all(contract.operation, elements * size_of(contract.dtype), validator.size);
}

void Communicator::Impl::run_group(OpenGroup& group) {
  std::exception_ptr first;
  auto const attempt = [&](auto const& body) {
    try {
      body();
    } catch (...) {
      if (!first) first = std::current_exception();
    }
  };
  group.copy_own_messages();
  for (auto& calls : group.calls()) attempt([&] { run_merged(calls); });
  if (!group.messages().empty()) {
    Landed const landed(group.options().stream ? &turn_->in_flight : nullptr);
    attempt([&] { move(group.transfer(), group.messages()); });
  }
  if (first) std::rethrow_exception(first);
}

Message Communicator::Impl::numbered(Message message) noexcept {
  message.number = lane(message.direction, message.peer).messages++;
  return message;
}

void Communicator::Impl::refuse_lane(Call const& call, Message::Direction direction, int peer) const {
  auto const sends = direction == Message::Direction::send;
  validator.fail(ErrorCode::aborted, call.contract.operation,
                 fmt::format("a Messenger was destroyed in the middle of an earlier message {} rank {}, which no other "
                             "can follow; wait for requests first, and make a new communicator",
                             sends ? "to" : "from", peer));
}

Work Communicator::Impl::transfer(Call&& call, std::optional<Message> send, std::optional<Message> recv,
                                  CollectiveOptions const& how) {
  validator.check_options(call, how);
  if (how.tag != 0) validator.set_tag(call, how.tag);
  call.timeout = timeout_of(how);
  if (call.is_on_host()) {
    if (send) check_lane(call, send->direction, send->peer);
    if (recv) check_lane(call, recv->direction, recv->peer);
  }
  if (group_) {
    check_in_group(call, how);
    return group_->add(call, send, recv);
  }
  validator.check_peer_is_another(call);
  if (!call.is_on_host()) {
    std::array<Message, 2> messages;
    std::size_t count = 0;
    if (send) messages[count++] = *send;
    if (recv) messages[count++] = *recv;
    return transfer_on_device(call, std::span(messages).first(count), how);
  }
  call.on_stream = how.stream.has_value();
  std::array<Message, 2> messages;
  std::size_t count = 0;
  if (send) messages[count++] = numbered(*send);
  if (recv) messages[count++] = numbered(*recv);
  call.sequence = ++transfers_;
  if (fusion_) fusion_->launch();
  if (!how.stream) {
    move(call, std::span(messages).first(count));
    return {};
  }
  turn_->in_flight.fetch_add(1);
  return enqueue_work(*how.stream, [this, turn = turn_, call, messages, count] {
    Landed const landed(&turn_->in_flight);
    move(call, std::span(messages).first(count));
  });
}

void Communicator::Impl::move(Call const& call, std::span<Message const> messages) {
  auto const start = now();
  with_name([&] { recorder_->record(call, messages, [&] { backend_->transfer(call, messages); }); });
  if (!options.emulated_link) return;
  use_precise_sleep();
  sleep_until(start + link_time(*options.emulated_link, call, validator.rank, validator.size));
}

Buffer Communicator::Impl::allocate(Call call) {
  check_no_group("allocate");
  std::shared_ptr<void> memory;
  if (!call.is_on_host()) {
    call.timeout = options.config->timeout;
    with_name([&] { memory = allocate_on_device(call); });
    return {std::move(memory), call.contract.count, call.contract.dtype, call.device};
  }
  if (fusion_)
    fusion_->flush_then([&] { call.sequence = next_call(); });
  else
    call.sequence = next_call();
  call.timeout = options.config->timeout;
  in_turn(call, [&] { memory = backend_->allocate(call); });
  return {std::move(memory), call.contract.count, call.contract.dtype, Device{}};
}

void Communicator::Impl::abort(std::string const& reason) noexcept {
  if (process_ != process_number()) return;
  auto line = reason;  // an error is a single line
  std::replace_if(
      line.begin(), line.end(), [](unsigned char c) { return c < ' '; }, ' ');
  backend_->abort(line);
  if (device_) device_->fail(ErrorCode::aborted, line);
}

void Communicator::Impl::throw_with_name(Error const& error) const {
  throw Error(error.code(), fmt::format("{} (communicator {})", error.what(), options.name));
}

void Communicator::Impl::execute_on_link(Call const& call, std::function<void(Call const&)> const& body) {
  use_precise_sleep();
  auto met = now();
  auto timed = call;
  timed.met = &met;  // the link is busy from the moment the last rank came
  body(timed);
  call.route = timed.route;
  sleep_until(met + link_time(*options.emulated_link, call, validator.rank, validator.size));
}

}  // namespace weft
