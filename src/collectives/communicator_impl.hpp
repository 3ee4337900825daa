#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collectives/backend.hpp"
#include "collectives/device_backend.hpp"
#include "collectives/flight/flight_recorder.hpp"
#include "collectives/fusion.hpp"
#include "collectives/merged_call.hpp"
#include "collectives/message.hpp"
#include "collectives/observed_call.hpp"
#include "collectives/open_group.hpp"
#include "collectives/validation.hpp"
#include "core/mpi_members.hpp"
#include "core/process_number.hpp"
#include "runtime/timeline.hpp"
#include "weft/communicator.hpp"
#include "weft/error.hpp"

namespace weft {

/// Orders the checked calls and runs them: inline on the caller, or on the stream's thread when their turn has come;
/// alone, or merged where a group is open or the stream is fused.
class Communicator::Impl {
 public:
  Impl(std::unique_ptr<Backend> backend, std::shared_ptr<FlightRecorder> recorder, int rank, int size,
       CommunicatorOptions const& with);
  ~Impl();

  using Operation = MergedCall::Run;

  [[gnu::hot]] Work run(Call&& call, Operation operation, CollectiveOptions const& how) {
    if (merging_ || how.stream || !call.is_on_host()) [[unlikely]]
      return run_later(std::move(call), operation, how);
    call.timeout = options.config->timeout;
    if (how.timeout || how.tag != 0 || how.feedback) [[unlikely]]
      set_options(call, how);
    CallingThread const here(*this, call.contract.operation);
    call.sequence = next_call();
    run_here(call, operation);
    return {};
  }

  /// Whether an open group has taken the call as one more like its last, see OpenGroup::extend().
  [[nodiscard]] bool extends_group(weft::Operation operation, ConstBufferView const& send, BufferView const& recv,
                                   ReduceOp op, CollectiveOptions const& how) {
    return group_ && !busy_.load(std::memory_order_relaxed) && group_->extend(operation, send, recv, op, how);
  }
  [[nodiscard]] Work group_work() const { return Work{group_->state()}; }

  /// Up to two messages that complete together.
  Work transfer(Call&& call, std::optional<Message> send, std::optional<Message> recv, CollectiveOptions const& how);
  Buffer allocate(Call call);
  void abort(std::string const& reason) noexcept;

  // See communicator_shrink.cpp.
  /// Fails the communicator unless it has failed, and waits until what this rank has under way has ended.
  void end_calls() noexcept;
  /// @throws Error{unsupported} where shrink() cannot be.
  void require_survivors() const;
  [[nodiscard]] std::shared_ptr<Survivors> find_survivors();

  // Memory on a device, see communicator_device.cpp.
  /// Collective: makes the communicator ready for what `factory` is for.
  void connect(DeviceFactory& factory);
  void connect(Device device);
  /// Null before connect().
  [[nodiscard]] DeviceBackend* device() const noexcept { return device_.get(); }

  void open_group(CollectiveOptions const& how);
  Work end_group();
  void drop_group() noexcept;
  /// @throws Error{invalid_argument} for a function that makes no sense while a group is open.
  void check_no_group(char const* function) const;

  void fuse(Stream const& stream, std::size_t bytes);

  // For a Messenger, which makes one of these calls at a time.
  [[nodiscard]] FlightRecorder& recorder() const noexcept { return *recorder_; }
  /// Numbers the message, and begins it.
  [[nodiscard]] std::unique_ptr<Transit> begin(Call const& call, Message const& message) {
    auto& counts = message.direction == Message::Direction::send ? sent_ : received_;
    return backend_->begin(call, numbered(message, counts));
  }
  /// For the last message from `source`, after its Transit was withdrawn.
  void take_back(int source) noexcept { --received_[static_cast<std::size_t>(source)]; }
  void await(Call const& call, std::function<bool()> const& ready) {
    with_name([&] { backend_->await(call, ready); });
  }
  [[nodiscard]] PeerState peer_state(int rank) { return backend_->peer_state(rank); }
  void fail(ErrorCode code, std::string const& reason) noexcept { backend_->fail(code, reason); }

  void throw_if_failed() { backend_->throw_if_failed(); }

  /// @throws Error{invalid_argument} in a child that was forked from the process whose communicator this is: its
  /// parent's peers would take the child's calls for the parent's.
  void check_process(char const* function) const {
    if (process_ != process_number()) [[unlikely]]
      refuse_child(function);
  }

  Validator const validator;
  CommunicatorOptions const options;
  std::shared_ptr<MpiMembers const> mpi;  ///< where MPI started the ranks

 private:
  /// How far the calls have come. Tasks on streams share it: they touch it after the last thing that ~Impl() waits for.
  struct Turn {
    std::atomic<std::uint64_t> finished{0};
    std::atomic<int> in_flight{0};          ///< transfers on streams
    std::atomic<bool> asynchronous{false};  ///< some call went to a stream, so another thread may wait for its turn
  };

  /// A blocking collective under way, for finding out a second thread that calls meanwhile. As good as two plain stores
  /// are, for the sake of small calls: threads that come within nanoseconds of one another are not found.
  class CallingThread {
   public:
    CallingThread(Impl& of, weft::Operation operation) : busy_(of.busy_) {
      if (busy_.load(std::memory_order_relaxed)) [[unlikely]]
        of.refuse_second_thread(operation);
      busy_.store(true, std::memory_order_relaxed);
    }
    ~CallingThread() { busy_.store(false, std::memory_order_relaxed); }
    CallingThread(CallingThread const&) = delete;
    CallingThread& operator=(CallingThread const&) = delete;

   private:
    std::atomic<bool>& busy_;
  };
  [[noreturn]] void refuse_second_thread(weft::Operation operation) const;
  [[noreturn]] void refuse_child(char const* function) const;

  /// Counts a transfer on a stream as landed when it ends.
  struct Landed {
    explicit Landed(std::atomic<int>* of) noexcept : in_flight(of) {}
    ~Landed() {
      if (in_flight == nullptr) return;
      in_flight->fetch_sub(1);
      notify_all(*in_flight);
    }
    Landed(Landed const&) = delete;
    Landed& operator=(Landed const&) = delete;
    std::atomic<int>* in_flight;
  };

  /// The number of a call. One thread at a time; errors of bad calls are told the last one meanwhile.
  std::uint64_t next_call() noexcept {
    auto const next = issued_.load(std::memory_order_relaxed) + 1;
    issued_.store(next, std::memory_order_relaxed);
    return next;
  }
  [[nodiscard]] std::chrono::milliseconds timeout_of(CollectiveOptions const& how) const;
  void check_in_group(Call const& call, CollectiveOptions const& how) const;
  /// @throws Error{invalid_argument} where what this rank sends to itself is not what it receives; ends the group.
  void check_group(OpenGroup& group) const;
  class HostBootstrap;
  /// The back end of `device`, made now where there is none.
  [[nodiscard]] DeviceBackend& device_for(Call const& call);
  /// As connect(), whose errors have no name yet.
  void connect_now(Device device);
  [[nodiscard]] std::shared_ptr<void> allocate_on_device(Call const& call);
  Work run_on_device(Call&& call, CollectiveOptions const& how);
  Work transfer_on_device(Call const& call, std::span<Message const> messages, CollectiveOptions const& how);
  Work end_device_group(OpenGroup& group);
  [[nodiscard]] static Message numbered(Message message, std::vector<std::uint64_t>& counts);

  /// But for the stream.
  void set_options(Call& call, CollectiveOptions const& how) const;
  /// On a stream, or where calls merge.
  Work run_later(Call&& call, Operation operation, CollectiveOptions const& how);
  void run_here(Call const& call, Operation operation) {
    if (is_plain_ && !turn_->asynchronous.load(std::memory_order_relaxed)) [[likely]]
      return run_plainly(call, operation);
    if (turn_->asynchronous.load(std::memory_order_relaxed)) [[unlikely]]
      recorder_->enqueue(call);  // it may wait for its turn
    execute(call, [&](Call const& timed) { (backend_.get()->*operation)(timed); });
  }
  /// What is left of it where no call was ever on a stream, and there is neither a link to emulate nor a name to tell.
  void run_plainly(Call const& call, Operation operation) {
    struct Done {
      std::atomic<std::uint64_t>& finished;
      std::uint64_t sequence;
      ~Done() { finished.store(sequence, std::memory_order_release); }
    } const done{turn_->finished, call.sequence};
    recorder_->record(call, [&] { (backend_.get()->*operation)(call); });
  }
  void launch_fused(MergedCall&& calls, Stream::Impl& stream, std::shared_ptr<Work::State> state);
  /// Numbers the call, and announces to the recorder that it will run later.
  void issue(MergedCall& calls);
  void run_merged(MergedCall& calls);
  void run_group(OpenGroup& group);
  [[nodiscard]] ObservedCall observe(OpenGroup& group) const;
  /// Of all of them, on all ranks.
  [[nodiscard]] std::size_t bytes_of_all(MergedCall const& calls) const noexcept;
  /// Moves messages; `call` is for the time limit and reports.
  void move(Call const& call, std::span<Message const> messages);

  /// Runs `body(call)` in turn, with the emulated link's time.
  template <typename Body>
  void execute(Call const& call, Body&& body);
  /// Runs `body` as `call`: after all earlier ones, on whichever thread.
  template <typename Body>
  void in_turn(Call const& call, Body&& body);
  void await_turn(std::uint64_t earlier) const noexcept;
  /// Waits for this rank's calls on streams of the CPU.
  void finish_calls() noexcept;
  /// Errors of a communicator that has a name end with it.
  template <typename Body>
  void with_name(Body&& body) const;
  [[noreturn]] void throw_with_name(Error const& error) const;
  void execute_on_link(Call const& call, std::function<void(Call const&)> const& body);

  std::uint32_t const process_ = process_number();
  std::unique_ptr<Backend> backend_;
  std::shared_ptr<FlightRecorder> recorder_;
  std::atomic<std::uint64_t> issued_{0};  // by the one calling thread; where streams fuse, under the fusion's lock
  std::atomic<bool> busy_{false};         // a thread is in a blocking collective
  std::uint64_t transfers_ = 0;           // point-to-point calls, by the one calling thread
  std::vector<std::uint64_t> sent_;       // messages issued to each rank, by the one calling thread
  std::vector<std::uint64_t> received_;   // and from each
  std::shared_ptr<Turn> const turn_ = std::make_shared<Turn>();
  std::unique_ptr<DeviceBackend> device_;  // asks backend_ for peers
  bool merging_ = false;                   // a group is open, or some stream is fused
  bool const is_plain_ = !options.emulated_link && options.name.empty();
  std::shared_ptr<OpenGroup> group_;
  std::size_t last_group_calls_ = 0;  // groups often come again
  std::shared_ptr<Fusion> fusion_;
};

template <typename Body>
void Communicator::Impl::execute(Call const& call, Body&& body) {
  in_turn(call, [&] {
    if (options.emulated_link) [[unlikely]]
      return execute_on_link(call, body);
    body(call);
  });
}

template <typename Body>
void Communicator::Impl::in_turn(Call const& call, Body&& body) {
  // Without calls on streams each is made when the one before has returned.
  if (turn_->asynchronous.load(std::memory_order_relaxed)) [[unlikely]]
    await_turn(call.sequence - 1);
  struct Done {
    Turn& turn;
    std::uint64_t sequence;
    ~Done() {
      turn.finished.store(sequence, std::memory_order_release);
      if (turn.asynchronous.load(std::memory_order_relaxed)) [[unlikely]]
        notify_all(turn.finished);
    }
  } const done{*turn_, call.sequence};
  with_name([&] { recorder_->record(call, body); });
}

template <typename Body>
void Communicator::Impl::with_name(Body&& body) const {
  if (options.name.empty()) [[likely]]
    return body();
  try {
    body();
  } catch (Error const& error) {
    throw_with_name(error);
  }
}

inline void Communicator::Impl::await_turn(std::uint64_t earlier) const noexcept {
  for (auto seen = turn_->finished.load(std::memory_order_acquire); seen < earlier;
       seen = turn_->finished.load(std::memory_order_acquire)) {
    wait_while(turn_->finished, seen, std::memory_order_acquire);
  }
}

}  // namespace weft
