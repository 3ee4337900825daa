#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "collectives/call.hpp"
#include "collectives/flight/flight_ring.hpp"
#include "collectives/flight/message_ring.hpp"
#include "weft/bootstrap.hpp"
#include "weft/config.hpp"
#include "weft/error.hpp"

namespace weft {

/// Whose calls are recorded.
struct FlightIdentity {
  std::uint64_t communicator = 0;  ///< random, the same on every rank of the communicator and on no other's
  int rank = 0;
  int size = 1;
  long pid = 0;
  std::string host;
  std::string name{};  ///< what the application calls the communicator; may be empty
};

/// Remembers the last calls and messages of one rank of a communicator, and writes them to a file when a call fails
/// because of its peers, or on request.
///
/// Only the thread that runs calls may record() a call, and only the thread that issues calls may enqueue() one. All
/// else is for any thread.
class FlightRecorder {
 public:
  /// Collective: the ranks agree on the communicator's identity. dump_flight_recorders() and SIGUSR2 find the recorder
  /// until it is destroyed, unless config.flight_recorder is 0.
  [[nodiscard]] static std::shared_ptr<FlightRecorder> create(Bootstrap& bootstrap, Config const& config,
                                                              std::string const& name = {});

  FlightRecorder(FlightIdentity identity, Config const& config);

  void enqueue(Call const& call) noexcept { ring_.enqueue(call); }
  /// The same for a caller that knows the time.
  void enqueue(Call const& call, std::chrono::steady_clock::time_point now) noexcept { ring_.enqueue(call, now); }

  /// For calls that another thread starts and ends, see FlightRing.
  void prepare(std::uint64_t sequence) noexcept { ring_.prepare(sequence); }

  /// The parts of record() by themselves, for calls that do not run inside a function, such as those on a device. For
  /// one thread, in the order of the calls' numbers.
  void start(Call const& call) noexcept { ring_.start(call); }
  void finish(Call const& call) noexcept { ring_.finish(call); }
  void fail(Call const& call, std::exception const& error) noexcept;

  /// Runs `body` as `call`, and records what it throws. The first peer_lost, timeout, mismatch or aborted makes the
  /// recorder write its dump to config.flight_directory.
  template <typename Body>
  void record(Call const& call, Body&& body) {
    ring_.start(call);
    try {
      body();
    } catch (std::exception const& error) {
      fail(call, error);
      throw;
    }
    ring_.finish(call);
  }

  /// The same for messages that complete together.
  template <typename Body>
  void record(Call const& call, std::span<Message const> messages, Body&& body) {
    RecordedTransfer transfer(message_ring_, messages, call.on_stream);
    try {
      body();
    } catch (std::exception const& error) {
      transfer.finish(FlightState::failed);
      fail(transfer, error);
      throw;
    }
    transfer.finish(FlightState::finished);
  }

  /// The parts of that record() by themselves. The caller finish()es the returned RecordedTransfer in any case, and
  /// then calls fail() if it failed. Any thread.
  [[nodiscard]] RecordedTransfer begin(std::span<Message const> messages, bool on_stream) {
    return {message_ring_, messages, on_stream};
  }
  void fail(RecordedTransfer const& transfer, std::exception const& error) noexcept;

  /// Records one message by separate calls at its beginning and at its end. Any thread.
  [[nodiscard]] std::uint64_t begin(Message const& message) noexcept { return message_ring_.start(message, false); }
  void end(std::uint64_t record, Message const& message, FlightState state) noexcept {
    message_ring_.finish(record, message, false, state);
  }

  /// Writes this rank's dump to config.flight_directory, or else to the current directory, over its earlier one, and
  /// returns the path. docs/debugging-hangs.md describes the file. Any thread. @throws Error{system}
  std::filesystem::path dump(std::string const& reason) const;

  [[nodiscard]] FlightIdentity const& identity() const noexcept { return identity_; }
  /// The dump's content.
  [[nodiscard]] std::string to_json(std::string const& reason) const;

 private:
  struct Failure {
    bool of_message = false;
    std::uint64_t number = 0;  ///< the call's sequence, or the message's record
    std::string code;
    std::string text;
  };

  /// Notes the failure of a call or, where `of_messages`, of messages; `numbers`: see Failure::number.
  void note(std::span<std::uint64_t const> numbers, bool of_messages, std::exception const& error) noexcept;
  void dump_once(ErrorCode code) noexcept;
  [[nodiscard]] std::optional<Failure> failure_of(bool of_message, std::uint64_t number) const;

  FlightIdentity const identity_;
  std::optional<std::string> const directory_;
  FlightRing ring_;
  MessageRing message_ring_;
  std::atomic<bool> dumped_{false};
  mutable std::mutex mutex_;      // guards failures_
  std::deque<Failure> failures_;  // of the last calls and messages that failed
  mutable std::mutex writing_;    // held while a dump is written
};

}  // namespace weft
