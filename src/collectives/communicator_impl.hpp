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
#include <unordered_map>
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

/// Numbers the checked calls and runs them in that order: on the calling thread, or on the stream's thread when their
/// turn has come. Where a group is open or the stream is fused, it merges calls.
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

  /// Whether an open group took the call by its short way, see OpenGroup::extend().
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
  /// Fails the communicator unless it has failed already, and waits until this rank's calls under way have ended.
  void end_calls() noexcept;
  /// @throws Error{unsupported} where shrink() is not possible.
  void require_survivors() const;
  [[nodiscard]] std::shared_ptr<Survivors> find_survivors();

  // Memory on a device, see communicator_device.cpp.
  /// Collective: makes the communicator ready for the device that `factory` makes a back end for.
  void connect(DeviceFactory& factory);
  void connect(Device device);
  /// Null before connect().
  [[nodiscard]] DeviceBackend* device() const noexcept { return device_.get(); }

  void open_group(CollectiveOptions const& how);
  Work end_group();
  void drop_group() noexcept;
  /// For a function that makes no sense while a group is open. @throws Error{invalid_argument} where one is.
  void check_no_group(char const* function) const;

  void fuse(Stream const& stream, std::size_t bytes);

  // For a Messenger, which makes one of these calls at a time.
  [[nodiscard]] FlightRecorder& recorder() const noexcept { return *recorder_; }
  /// Numbers the message among those to or from its peer, and begins it.
  [[nodiscard]] std::unique_ptr<Transit> begin(Call const& call, Message const& message) {
    return backend_->begin(call, numbered(message));
  }
  /// Frees the number of the last message to or from `peer`, after its Transit was withdrawn.
  void take_back(Message::Direction direction, int peer) noexcept { --lane(direction, peer).messages; }
  /// Notes that the last message to or from `peer` ended halfway, so that no other can follow it.
  void break_off(Message::Direction direction, int peer) noexcept { lane(direction, peer).broken_off = true; }
  [[nodiscard]] bool is_broken_off(Message::Direction direction, int peer) const noexcept {
    return (direction == Message::Direction::send ? sent_ : received_)[static_cast<std::size_t>(peer)].broken_off;
  }
  /// @throws Error{aborted} where a message in this direction was broken off.
  void check_lane(Call const& call, Message::Direction direction, int peer) const {
    if (is_broken_off(direction, peer)) [[unlikely]]
      refuse_lane(call, direction, peer);
  }
  void await(Call const& call, std::function<bool()> const& ready) {
    with_name([&] { backend_->await(call, ready); });
  }
  /// Counts a Messenger's message to or from `peer` with that tag, for reports, and returns its number, from 0. Since a
  /// program might use every tag just once, counting begins anew after 4096 tags, at about the same message on both
  /// sides.
  [[nodiscard]] std::uint64_t count_tagged(Message::Direction direction, int peer, int tag) {
    constexpr std::size_t kMostTags = 4096;
    auto& of_lane = (direction == Message::Direction::send ? sent_tagged_ : received_tagged_)[peer];
    if (of_lane.size() >= kMostTags && of_lane.count(tag) == 0) of_lane.clear();
    return of_lane[tag]++;
  }
  [[nodiscard]] PeerState peer_state(int rank) { return backend_->peer_state(rank); }
  void fail(ErrorCode code, std::string const& reason) noexcept { backend_->fail(code, reason); }

  void throw_if_failed() { backend_->throw_if_failed(); }

  /// @throws Error{invalid_argument} in a forked child of the process that made this communicator: the parent's peers
  /// would take the child's calls for the parent's.
  void check_process(char const* function) const {
    if (process_ != process_number()) [[unlikely]]
      refuse_child(function);
  }

  Validator const validator;
  CommunicatorOptions const options;
  std::shared_ptr<MpiMembers const> mpi;  ///< where MPI started the ranks

 private:
  /// How far the calls have come. Tasks on streams share ownership: they still touch it after what ~Impl() waits for.
  struct Turn {
    std::atomic<std::uint64_t> finished{0};
    std::atomic<int> in_flight{0};          ///< transfers on streams
    std::atomic<bool> asynchronous{false};  ///< a call has gone to a stream, so some thread may wait for its turn
  };

  /// Messages in one direction between this rank and another.
  struct Lane {
    std::uint64_t messages = 0;  ///< issued so far
    bool broken_off = false;     ///< the last one ends halfway
  };

  /// Marks that a blocking collective is under way, to detect a second thread that calls meanwhile. To keep small calls
  /// fast it makes only two plain stores: threads that come within nanoseconds of one another are not detected.
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

  /// Takes a transfer on a stream off Turn::in_flight when it ends.
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

  /// Takes the next call's number. One thread at a time; other threads may read the last number for errors meanwhile.
  std::uint64_t next_call() noexcept {
    auto const next = issued_.load(std::memory_order_relaxed) + 1;
    issued_.store(next, std::memory_order_relaxed);
    return next;
  }
  [[nodiscard]] std::chrono::milliseconds timeout_of(CollectiveOptions const& how) const;
  void check_in_group(Call const& call, CollectiveOptions const& how) const;
  /// Ends the group where its messages to this rank itself do not match, or its calls depend on one another.
  /// @throws Error{invalid_argument} then.
  void check_group(OpenGroup& group) const;
  class HostBootstrap;
  /// The back end of the call's device; makes it now where there is none.
  [[nodiscard]] DeviceBackend& device_for(Call const& call);
  /// As connect(), but errors do not name the communicator.
  void connect_now(Device device);
  /// Collective: whether `device` has failed on some rank.
  [[nodiscard]] bool has_failed_anywhere(DeviceBackend const& device);
  [[nodiscard]] std::shared_ptr<void> allocate_on_device(Call const& call);
  Work run_on_device(Call&& call, CollectiveOptions const& how);
  Work transfer_on_device(Call const& call, std::span<Message const> messages, CollectiveOptions const& how);
  Work end_device_group(OpenGroup& group);
  [[nodiscard]] Message numbered(Message message) noexcept;
  [[noreturn]] void refuse_lane(Call const& call, Message::Direction direction, int peer) const;
  [[nodiscard]] Lane& lane(Message::Direction direction, int peer) noexcept {
    return (direction == Message::Direction::send ? sent_ : received_)[static_cast<std::size_t>(peer)];
  }

  /// Checks the options and sets them in the call, all but the stream.
  void set_options(Call& call, CollectiveOptions const& how) const;
  /// Runs a call that goes to a stream, may merge, or has its buffers on a device.
  Work run_later(Call&& call, Operation operation, CollectiveOptions const& how);
  void run_here(Call const& call, Operation operation) {
    if (is_plain_ && !turn_->asynchronous.load(std::memory_order_relaxed)) [[likely]]
      return run_plainly(call, operation);
    if (turn_->asynchronous.load(std::memory_order_relaxed)) [[unlikely]]
      recorder_->enqueue(call);  // it may wait for its turn
    execute(call, [&](Call const& timed) { (backend_.get()->*operation)(timed); });
  }
  /// The short form of execute(): no call has ever been on a stream, no link is emulated, and no name goes into errors.
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
  /// Bytes of all the calls, on all ranks together.
  [[nodiscard]] std::size_t bytes_of_all(MergedCall const& calls) const noexcept;
  /// Moves messages; `call` gives the time limit, and reports name it.
  void move(Call const& call, std::span<Message const> messages);

  /// Runs `body(call)` in turn; where a link is emulated, it lasts as long as it would take there.
  template <typename Body>
  void execute(Call const& call, Body&& body);
  /// Runs `body` as `call`, once all earlier calls have finished, whichever threads they run on.
  template <typename Body>
  void in_turn(Call const& call, Body&& body);
  void await_turn(std::uint64_t earlier) const noexcept;
  /// Waits for this rank's calls on streams of the CPU.
  void finish_calls() noexcept;
  /// Runs `body`; adds the communicator's name, where it has one, to the end of errors.
  template <typename Body>
  void with_name(Body&& body) const;
  [[noreturn]] void throw_with_name(Error const& error) const;
  void execute_on_link(Call const& call, std::function<void(Call const&)> const& body);

  std::uint32_t const process_ = process_number();
  std::unique_ptr<Backend> backend_;
  std::shared_ptr<FlightRecorder> recorder_;
  std::atomic<std::uint64_t> issued_{0};  // written by the calling thread; where streams fuse, under the fusion's lock
  std::atomic<bool> busy_{false};         // a thread is in a blocking collective
  std::uint64_t transfers_ = 0;           // point-to-point calls; for the calling thread alone
  std::unordered_map<int, std::unordered_map<int, std::uint64_t>> sent_tagged_;  // a Messenger's, by peer and tag
  std::unordered_map<int, std::unordered_map<int, std::uint64_t>> received_tagged_;
  std::vector<Lane> sent_;      // by receiver; for the calling thread alone
  std::vector<Lane> received_;  // by sender; likewise
  std::shared_ptr<Turn> const turn_ = std::make_shared<Turn>();
  std::unique_ptr<DeviceBackend> device_;  // asks backend_ for the state of peers
  bool merging_ = false;                   // a group is open, or some stream is fused
  bool const is_plain_ = !options.emulated_link && options.name.empty();
  std::shared_ptr<OpenGroup> group_;
  std::size_t last_group_calls_ = 0;  // the next group's likely size, since programs repeat their groups
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
  // While no call was on a stream, the one before has always returned already.
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
