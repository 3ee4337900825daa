#include "weft/communicator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <span>
#include <utility>
#include <vector>

#include "collectives/backend.hpp"
#include "collectives/communicator_bootstrap.hpp"
#include "collectives/create_backend.hpp"
#include "collectives/emulated_link.hpp"
#include "collectives/flight/flight_recorder.hpp"
#include "collectives/subset_bootstrap.hpp"
#include "collectives/validation.hpp"
#include "core/mpi_members.hpp"
#include "runtime/deadline.hpp"
#include "runtime/work_state.hpp"
#include "weft/error.hpp"

namespace weft {

/// Orders the checked calls and runs them: inline on the caller, or on the stream's thread when their turn has come.
class Communicator::Impl {
 public:
  Impl(std::unique_ptr<Backend> backend, std::shared_ptr<FlightRecorder> recorder, int rank, int size,
       CommunicatorOptions const& with)
      : validator{rank, size, with.name, &issued_, &transfers_},
        options(with),
        backend_(std::move(backend)),
        recorder_(std::move(recorder)),
        sent_(static_cast<std::size_t>(size)),
        received_(static_cast<std::size_t>(size)) {}

  ~Impl() {
    await_turn(issued_);
    for (auto left = in_flight_.load(); left > 0; left = in_flight_.load()) in_flight_.wait(left);
  }

  using Operation = void (Backend::*)(Call const&);

  Work run(Call&& call, Operation operation, CollectiveOptions const& how) {
    validator.check_options(call.contract.operation, how);
    call.sequence = ++issued_;
    call.timeout = how.timeout.value_or(options.config->timeout);
    if (!how.stream) {
      if (asynchronous_.load(std::memory_order_relaxed)) recorder_->enqueue(call);  // it may wait for its turn
      execute(call, operation);
      return {};
    }
    call.on_stream = true;
    call.own_parts();
    asynchronous_.store(true, std::memory_order_relaxed);
    recorder_->enqueue(call);
    return enqueue_work(*how.stream, [this, call, operation] { execute(call, operation); });
  }

  /// Up to two messages that complete together.
  Work transfer(Call&& call, std::optional<Message> send, std::optional<Message> recv, CollectiveOptions const& how) {
    validator.check_options(call.contract.operation, how);
    call.timeout = how.timeout.value_or(options.config->timeout);
    call.on_stream = how.stream.has_value();
    std::array<Message, 2> messages;
    std::size_t count = 0;
    if (send) messages[count++] = numbered(*send, sent_);
    if (recv) messages[count++] = numbered(*recv, received_);
    call.sequence = ++transfers_;
    auto const move = [this, call, messages, count] {
      auto const start = std::chrono::steady_clock::now();
      with_name([&] { backend_->transfer(call, std::span(messages).first(count)); });
      if (!options.emulated_link) return;
      use_precise_sleep();
      sleep_until(start + link_time(*options.emulated_link, call, validator.size));
    };
    if (!how.stream) {
      move();
      return {};
    }
    in_flight_.fetch_add(1);
    return enqueue_work(*how.stream, [this, move] {
      struct Landed {
        std::atomic<int>& in_flight;
        ~Landed() {
          in_flight.fetch_sub(1);
          in_flight.notify_all();
        }
      } const landed{in_flight_};
      move();
    });
  }

  Buffer allocate(Call call) {
    std::shared_ptr<void> memory;
    call.sequence = ++issued_;
    call.timeout = options.config->timeout;
    in_turn(call, [&] { memory = backend_->allocate(call); });
    return {std::move(memory), call.contract.count, call.contract.dtype, Device{}};
  }

  void abort(std::string const& reason) noexcept { backend_->abort(reason); }

  Validator const validator;
  CommunicatorOptions const options;
  std::shared_ptr<MpiMembers const> mpi;  ///< where MPI started the ranks

 private:
  static Message numbered(Message message, std::vector<std::uint64_t>& counts) {
    message.number = counts[static_cast<std::size_t>(message.peer)]++;
    return message;
  }

  void execute(Call const& call, Operation operation) {
    in_turn(call, [&] {
      if (!options.emulated_link) return (backend_.get()->*operation)(call);
      use_precise_sleep();
      auto met = std::chrono::steady_clock::now();
      auto timed = call;
      timed.met = &met;  // the link is busy from when the last rank came
      (backend_.get()->*operation)(timed);
      sleep_until(met + link_time(*options.emulated_link, call, validator.size));
    });
  }

  /// Runs `body` as `call`: after all earlier ones, on whichever thread.
  template <typename Body>
  void in_turn(Call const& call, Body&& body) {
    await_turn(call.sequence - 1);
    struct Done {
      Impl& impl;
      std::uint64_t sequence;
      ~Done() {
        impl.finished_.store(sequence, std::memory_order_release);
        if (impl.asynchronous_.load(std::memory_order_relaxed)) impl.finished_.notify_all();
      }
    } const done{*this, call.sequence};
    with_name([&] { recorder_->record(call, body); });
  }

  /// Errors of a communicator that has a name end with it.
  template <typename Body>
  void with_name(Body&& body) const {
    if (options.name.empty()) return body();
    try {
      body();
    } catch (Error const& error) {
      throw Error(error.code(), fmt::format("{} (communicator {})", error.what(), options.name));
    }
  }

  void await_turn(std::uint64_t earlier) const noexcept {
    for (auto seen = finished_.load(std::memory_order_acquire); seen < earlier;
         seen = finished_.load(std::memory_order_acquire)) {
      finished_.wait(seen, std::memory_order_acquire);
    }
  }

  std::unique_ptr<Backend> backend_;
  std::shared_ptr<FlightRecorder> recorder_;
  std::uint64_t issued_ = 0;     // by the one calling thread
  std::uint64_t transfers_ = 0;  // point-to-point calls, by the same
  std::atomic<std::uint64_t> finished_{0};
  std::vector<std::uint64_t> sent_;        // messages issued to each rank, by the one calling thread
  std::vector<std::uint64_t> received_;    // and from each
  std::atomic<int> in_flight_{0};          // messages on streams
  std::atomic<bool> asynchronous_{false};  // some call went to a stream, so another thread may wait for its turn
};

Communicator Communicator::create(std::shared_ptr<Bootstrap> bootstrap, CommunicatorOptions const& options) {
  if (!bootstrap) throw Error(ErrorCode::invalid_argument, "Communicator::create: bootstrap is null");
  auto resolved = options;
  if (!resolved.config) resolved.config = Config::from_environment();
  resolved.config->check();
  if (resolved.emulated_link) check(*resolved.emulated_link);
  auto backend = create_backend(*bootstrap, resolved);
  auto recorder = FlightRecorder::create(*bootstrap, *resolved.config, resolved.name);
  auto impl =
      std::make_unique<Impl>(std::move(backend), std::move(recorder), bootstrap->rank(), bootstrap->size(), resolved);
  impl->mpi = bootstrap->mpi();
  return Communicator(std::move(impl));
}

Communicator Communicator::duplicate(CommunicatorOptions const& options) {
  return create(std::make_shared<CommunicatorBootstrap>(*this, live("duplicate").mpi), options);
}

std::optional<Communicator> Communicator::split(int color, int key) {
  auto with = live("split").options;
  if (!with.name.empty()) with.name += fmt::format("/{}", color);
  return split(color, key, with);
}

std::optional<Communicator> Communicator::split(int color, int key, CommunicatorOptions const& options) {
  live("split").validator.check_color(color, kNoColor);
  std::array<std::int32_t, 2> const mine{color, key};
  std::vector<std::int32_t> all(2 * static_cast<std::size_t>(size()));
  all_gather(std::span<std::int32_t const>(mine), std::span(all));
  if (color == kNoColor) return std::nullopt;
  std::vector<int> members;
  auto const key_of = [&](int member) { return all[2 * static_cast<std::size_t>(member) + 1]; };
  for (int r = 0; r < size(); ++r) {
    if (all[2 * static_cast<std::size_t>(r)] == color) members.push_back(r);
  }
  std::stable_sort(members.begin(), members.end(), [&](int a, int b) { return key_of(a) < key_of(b); });
  auto const me = static_cast<int>(std::find(members.begin(), members.end(), rank()) - members.begin());
  auto mpi = impl_->mpi ? impl_->mpi->subset(members) : nullptr;
  return create(std::make_shared<SubsetBootstrap>(*this, members, me, std::move(mpi)), options);
}

Communicator::Communicator(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Communicator::Communicator(Communicator&&) noexcept = default;
Communicator& Communicator::operator=(Communicator&&) noexcept = default;
Communicator::~Communicator() = default;

Communicator::Impl& Communicator::live(char const* function) const {
  if (impl_) [[likely]]
    return *impl_;
  throw Error(
      ErrorCode::invalid_argument,
      fmt::format("{}: this Communicator was moved from: it has no rank and makes no calls; use the one that it "
                  "was moved to",
                  function));
}

int Communicator::rank() const noexcept {
  return impl_ ? impl_->validator.rank : -1;
}
int Communicator::size() const noexcept {
  return impl_ ? impl_->validator.size : 0;
}
CommunicatorOptions const& Communicator::options() const {
  return live("options").options;
}

Buffer Communicator::allocate(std::size_t count, DataType dtype) {
  return live("allocate").allocate(impl_->validator.allocate(count, dtype));
}

Work Communicator::all_reduce(ConstBufferView const& send, BufferView const& recv, Reduction const& how,
                              CollectiveOptions const& options) {
  return live("all_reduce").run(impl_->validator.all_reduce(send, recv, how), &Backend::all_reduce, options);
}

Work Communicator::reduce_scatter(ConstBufferView const& send, BufferView const& recv, Reduction const& how,
                                  CollectiveOptions const& options) {
  return live("reduce_scatter")
      .run(impl_->validator.reduce_scatter(send, recv, how), &Backend::reduce_scatter, options);
}

Work Communicator::all_gather(ConstBufferView const& send, BufferView const& recv, CollectiveOptions const& options) {
  return live("all_gather").run(impl_->validator.all_gather(send, recv), &Backend::all_gather, options);
}

Work Communicator::reduce_scatter(ConstBufferView const& send, BufferView const& recv, Parts const& parts,
                                  Reduction const& how, CollectiveOptions const& options) {
  return live("reduce_scatter")
      .run(impl_->validator.reduce_scatter(send, recv, parts, how), &Backend::reduce_scatter, options);
}

Work Communicator::all_gather(ConstBufferView const& send, BufferView const& recv, Parts const& parts,
                              CollectiveOptions const& options) {
  return live("all_gather").run(impl_->validator.all_gather(send, recv, parts), &Backend::all_gather, options);
}

Work Communicator::reduce(ConstBufferView const& send, BufferView const& recv, Reduction const& how, int root,
                          CollectiveOptions const& options) {
  return live("reduce").run(impl_->validator.reduce(send, recv, how, root), &Backend::reduce, options);
}

Work Communicator::gather(ConstBufferView const& send, BufferView const& recv, int root,
                          CollectiveOptions const& options) {
  return live("gather").run(impl_->validator.gather(send, recv, root), &Backend::gather, options);
}

Work Communicator::gather(ConstBufferView const& send, BufferView const& recv, Parts const& parts, int root,
                          CollectiveOptions const& options) {
  return live("gather").run(impl_->validator.gather(send, recv, parts, root), &Backend::gather, options);
}

Work Communicator::scatter(ConstBufferView const& send, BufferView const& recv, int root,
                           CollectiveOptions const& options) {
  return live("scatter").run(impl_->validator.scatter(send, recv, root), &Backend::scatter, options);
}

Work Communicator::scatter(ConstBufferView const& send, Parts const& parts, BufferView const& recv, int root,
                           CollectiveOptions const& options) {
  return live("scatter").run(impl_->validator.scatter(send, parts, recv, root), &Backend::scatter, options);
}

Work Communicator::all_to_all(ConstBufferView const& send, BufferView const& recv, CollectiveOptions const& options) {
  return live("all_to_all").run(impl_->validator.all_to_all(send, recv), &Backend::all_to_all, options);
}

Work Communicator::all_to_all(ConstBufferView const& send, Parts const& send_parts, BufferView const& recv,
                              Parts const& recv_parts, CollectiveOptions const& options) {
  return live("all_to_all")
      .run(impl_->validator.all_to_all(send, send_parts, recv, recv_parts), &Backend::all_to_all, options);
}

Work Communicator::scan(ConstBufferView const& send, BufferView const& recv, Reduction const& how,
                        CollectiveOptions const& options) {
  return live("scan").run(impl_->validator.scan(send, recv, how, true), &Backend::scan, options);
}

Work Communicator::exscan(ConstBufferView const& send, BufferView const& recv, Reduction const& how,
                          CollectiveOptions const& options) {
  return live("exscan").run(impl_->validator.scan(send, recv, how, false), &Backend::scan, options);
}

Work Communicator::broadcast(BufferView const& buffer, int root, CollectiveOptions const& options) {
  return live("broadcast").run(impl_->validator.broadcast(buffer, root), &Backend::broadcast, options);
}

namespace {

Message outgoing(ConstBufferView const& buffer, int to) {
  return {.direction = Message::Direction::send,
          .dtype = buffer.dtype,
          .peer = to,
          .data = const_cast<void*>(buffer.data),  // NOLINT(cppcoreguidelines-pro-type-const-cast): only read
          .bytes = buffer.bytes()};
}

Message incoming(BufferView const& buffer, int from) {
  return {.direction = Message::Direction::receive,
          .dtype = buffer.dtype,
          .peer = from,
          .data = buffer.data,
          .bytes = buffer.bytes()};
}

}  // namespace

Work Communicator::send(ConstBufferView const& buffer, int to, CollectiveOptions const& options) {
  return live("send").transfer(impl_->validator.send(buffer, to), outgoing(buffer, to), std::nullopt, options);
}

Work Communicator::recv(BufferView const& buffer, int from, CollectiveOptions const& options) {
  return live("recv").transfer(impl_->validator.recv(buffer, from), std::nullopt, incoming(buffer, from), options);
}

Work Communicator::send_recv(ConstBufferView const& send, int to, BufferView const& recv, int from,
                             CollectiveOptions const& options) {
  return live("send_recv")
      .transfer(impl_->validator.send_recv(send, to, recv, from), outgoing(send, to), incoming(recv, from), options);
}

Work Communicator::barrier(CollectiveOptions const& options) {
  return live("barrier").run(Call{}, &Backend::barrier, options);
}

void Communicator::abort(std::string const& reason) noexcept {
  if (impl_) impl_->abort(reason);
}

}  // namespace weft
