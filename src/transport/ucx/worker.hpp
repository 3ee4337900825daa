#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "transport/ucx/ucp_library.hpp"

namespace weft::ucx {

/// What a message is found by: what it is part of, who sent it, and which of several it is. Messages with equal tags
/// come in the order in which they were sent.
struct Tag {
  enum class Kind : std::uint8_t { step = 1, announcement, message };

  Kind kind = Kind::step;
  int sender = 0;
  std::uint32_t number = 0;

  [[nodiscard]] std::uint64_t value() const noexcept {
    return std::uint64_t{static_cast<std::uint8_t>(kind)} << 56U |
           std::uint64_t{static_cast<std::uint32_t>(sender)} << 32U | number;
  }
};

class Worker;

/// A send, receive, put or flush under way. The object must stay where it is until it is done.
class Pending {
 public:
  Pending() = default;
  Pending(Pending const&) = delete;
  Pending& operator=(Pending const&) = delete;

  /// Any thread.
  [[nodiscard]] bool is_done() const noexcept { return done_.load(std::memory_order_acquire); }
  // Once it is done:
  [[nodiscard]] ucs_status_t status() const noexcept { return status_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }  ///< of a receive: how many came
  [[nodiscard]] int peer() const noexcept { return peer_; }

 private:
  friend class Worker;

  std::atomic<bool> done_{true};
  ucs_status_t status_ = UCS_OK;
  std::size_t bytes_ = 0;
  int peer_ = -1;
  bool receives_ = false;
  Worker* worker_ = nullptr;
  void* request_ = nullptr;  // UCX's, until it is done
};

/// A UCP context with one worker and an endpoint to every rank, each made at its first use. Any thread; a lock lets one
/// thread at a time into UCX.
class Worker {
 public:
  using Clock = std::chrono::steady_clock;
  /// Called with a short message that no receive had to expect, while the worker is locked.
  using Hear = std::function<void(std::span<std::byte const>)>;

  static constexpr std::size_t kMostNoticeBytes = 1024;
  /// Over TCP, messages of up to so many bytes leave before the receiver has asked for them. Longer ones do not overlap
  /// in both directions: the answer that asks for one message waits behind another that is on its way.
  static constexpr std::size_t kMostEager = std::size_t{256} << 10;

  /// `devices`: what UCX may use, as UCX_NET_DEVICES; empty: UCX's own choice. `rma`: whether puts will be used.
  /// @throws Error{system|unsupported}
  Worker(std::string const& devices, bool rma, int ranks, Hear hear);
  ~Worker();
  Worker(Worker const&) = delete;
  Worker& operator=(Worker const&) = delete;

  [[nodiscard]] std::vector<std::byte> address() const;
  /// Sets the addresses of all ranks; once, before anything is sent.
  void set_addresses(std::vector<std::vector<std::byte>> addresses) { addresses_ = std::move(addresses); }

  /// When a send is done: once its memory may be written again, or only once the receiver has asked for the message,
  /// too.
  enum class Sent : std::uint8_t { reusable, asked_for };

  /// The memory must last until the operation is done.
  void start_send(Pending& operation, int to, Tag const& tag, std::span<std::byte const> bytes,
                  Sent when = Sent::reusable);
  void start_recv(Pending& operation, int from, Tag const& tag, std::span<std::byte> bytes);
  /// Asks a receive to end without a message. It may still end with one; where a message has begun to arrive, it is not
  /// done before all of it is there.
  void cancel(Pending& operation);
  /// Ends all `operations` for good, and where necessary the connections to their peers (with rails, to all ranks).
  /// Afterwards nothing touches their memory any more.
  void abandon(std::span<Pending* const> operations);

  // Memory that others write to, see Windows. Functions return null where UCX cannot. All that they make must be given
  // back before the worker is destroyed.
  [[nodiscard]] ucp_mem_h register_memory(void* memory, std::size_t bytes);
  void deregister(ucp_mem_h registration) noexcept;
  /// What another rank needs to write to registered memory.
  [[nodiscard]] std::vector<std::byte> pack_key(ucp_mem_h registration);
  [[nodiscard]] ucp_rkey_h unpack_key(int owner, std::span<std::byte const> packed);
  void forget_key(ucp_rkey_h key) noexcept;
  /// Writes to `address` of rank `to`. It is done when `bytes` may be written again.
  void start_put(Pending& operation, int to, std::span<std::byte const> bytes, std::uint64_t address, ucp_rkey_h key);
  /// It is done when all that was put to `to` before has arrived.
  void start_flush(Pending& operation, int to);

  /// Sends a copy of `bytes` to the Hear function of `to`. It is lost where that rank is.
  void send_notice(int to, std::span<std::byte const> bytes);
  /// Whether a notice to that rank still waits here, such as for its connection.
  [[nodiscard]] bool owes_notice(int to) const;
  /// Makes progress until all notices are on their way, or until `deadline`.
  void flush_notices(Clock::time_point deadline);

  /// Moves on what can be moved on now; false where there was nothing.
  bool progress();
  /// Counts what has happened. Where it is the same before and after a look, the look has missed nothing.
  [[nodiscard]] std::uint64_t events() const noexcept { return events_.load(std::memory_order_acquire); }
  /// Sleeps until events() is no longer `seen`, or for `limit` at most; then moves on what has come meanwhile.
  void sleep(std::uint64_t seen, Clock::duration limit);
  /// Wakes all threads in sleep().
  void wake() noexcept;

  /// Whether the connection to `peer` has broken.
  [[nodiscard]] bool is_broken(int peer) const noexcept {
    return peers_[static_cast<std::size_t>(peer)].broken.load(std::memory_order_acquire);
  }
  [[nodiscard]] bool is_connected(int peer) const noexcept {
    return peers_[static_cast<std::size_t>(peer)].connected.load(std::memory_order_acquire);
  }
  [[nodiscard]] int first_broken() const noexcept { return first_broken_.load(std::memory_order_acquire); }

 private:
  struct Peer {
    Worker* worker = nullptr;
    int rank = 0;
    ucp_ep_h endpoint = nullptr;
    std::atomic<bool> connected{false};
    std::atomic<bool> broken{false};
  };
  struct Notice {
    Worker* worker = nullptr;
    int to = 0;
    std::vector<std::byte> bytes;
    bool done = false;
  };

  static void on_sent(void* request, ucs_status_t status, void* operation);
  static void on_received(void* request, ucs_status_t status, ucp_tag_recv_info_t const* info, void* operation);
  static void on_noticed(void* request, ucs_status_t status, void* notice);
  static ucs_status_t on_notice(void* self, void const* header, std::size_t header_length, void* data,
                                std::size_t length, ucp_am_recv_param_t const* how);
  static void on_error(void* peer, ucp_ep_h endpoint, ucs_status_t status);

  // The functions below are called with the mutex held.
  /// The endpoint to `rank`, made where there is none. Null where that fails; the peer is broken then.
  [[nodiscard]] ucp_ep_h endpoint(int rank);
  void begin(Pending& operation, int peer, bool receives) noexcept;
  /// The parameters with which UCX calls on_sent() at the end of a send, put or flush.
  [[nodiscard]] static ucp_request_param_t calls_back(Pending& operation) noexcept;
  /// Handles what a call of UCX has returned for an operation.
  static void take(Pending& operation, ucs_status_ptr_t request) noexcept;
  static void finish(Pending& operation, ucs_status_t status, std::size_t bytes) noexcept;
  void break_off(int rank) noexcept;
  bool advance();
  /// Advances until `ready` is true; false where it is not at the deadline.
  bool advance_until(Clock::time_point deadline, std::function<bool()> const& ready);
  /// Waits for a request; false where it is not done at the deadline.
  bool wait_for(ucs_status_ptr_t request, Clock::time_point deadline);
  void close(int rank);
  [[nodiscard]] bool all_noticed() const noexcept;
  /// Drops messages that nobody has received; UCX would complain of them.
  void drain();

  std::shared_ptr<UcpLibrary const> ucp_;
  Hear hear_;
  /// Whether UCX's newer protocols are in use, which rails need. With them, in version 1.13, closing a connection whose
  /// messages still wait to leave ends the process by an assertion, rather than ending the messages.
  bool const aborts_on_unfinished_;
  std::vector<std::vector<std::byte>> addresses_;
  std::deque<Peer> peers_;
  std::atomic<int> first_broken_{-1};
  std::atomic<std::uint64_t> events_{0};

  mutable std::mutex mutex_;  // guards UCX and the members below
  std::condition_variable changed_;
  bool watched_ = false;  // some thread sleeps at the descriptor
  int followers_ = 0;     // number of threads that sleep until that one wakes
  bool stopped_ = false;  // UCX is not called any more, so that nothing touches the memory of unfinished operations
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  int descriptor_ = -1;
  std::deque<std::unique_ptr<Notice>> notices_;
};

}  // namespace weft::ucx
