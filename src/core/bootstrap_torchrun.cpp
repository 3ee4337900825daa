#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <thread>

#include "core/local_socket.hpp"
#include "core/tcp_socket.hpp"
#include "weft/bootstrap.hpp"
#include "weft/error.hpp"

namespace weft {
namespace {

/// What torchrun tells this process.
struct Job {
  int rank = 0;
  int size = 1;
  std::string name;                                ///< the same on every rank of this job, and on no other of this user
  std::uint64_t token = 0;                         ///< guards against strangers that found the name
  std::optional<tcp_socket::Endpoint> meets_at{};  ///< where ranks are on several hosts, instead of the name
};

std::string required(char const* name) {
  char const* const value = std::getenv(name);
  if (value == nullptr || *value == '\0') {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("torchrun bootstrap: {} is not set; start with torchrun, or set it", name));
  }
  return value;
}

int required_int(char const* name, int least, int most) {
  std::string const text = required(name);
  int value = 0;
  auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < least || value > most) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("torchrun bootstrap: {}={}: expected a number from {} to {}", name, text, least, most));
  }
  return value;
}

std::string optional(char const* name) {
  char const* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

/// FNV-1a.
std::uint64_t hash(std::string const& text) {
  std::uint64_t value = 0xcbf2'9ce4'8422'2325U;
  for (char const letter : text) value = (value ^ static_cast<unsigned char>(letter)) * 0x0000'0100'0000'01b3U;
  return value;
}

Job read_job() {
  constexpr int kMostRanks = 1 << 16;
  Job job;
  job.size = required_int("WORLD_SIZE", 1, kMostRanks);
  job.rank = required_int("RANK", 0, job.size - 1);
  int const local_size = required_int("LOCAL_WORLD_SIZE", 1, kMostRanks);
  int const port = required_int("MASTER_PORT", 1, 65535);
  if (local_size > job.size) {
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("torchrun bootstrap: LOCAL_WORLD_SIZE={} is more than WORLD_SIZE={}", local_size, job.size));
  }
  // The store of torchrun's own agent listens at MASTER_PORT, where a variable says that there is one.
  auto const is_taken = optional("TORCHELASTIC_USE_AGENT_STORE") == "True";
  if (local_size < job.size) job.meets_at = {required("MASTER_ADDR"), is_taken && port < 65535 ? port + 1 : port};
  // After a restart by torchrun the old ranks may still be ending: the restart count keeps them apart from the new
  // ones.
  std::string const identity = fmt::format("{}/{}/{}", optional("MASTER_ADDR"), optional("TORCHELASTIC_RUN_ID"),
                                           optional("TORCHELASTIC_RESTART_COUNT"));
  job.name = fmt::format("weft-{}-{}-{:016x}", getuid(), port, hash(identity));
  job.token = hash(fmt::format("{}/{}", port, identity));  // without the user id, which may differ from host to host
  return job;
}

/// First message of every rank to rank 0.
struct Hello {
  char magic[8];
  std::uint64_t token;
  std::int32_t rank;
  std::int32_t size;
};
constexpr char kMagic[8] = {'w', 'e', 'f', 't', 'b', 's', '0', '3'};

/// Rank 0's answers and every rank's contributions begin with one of these; `left` is a rank's last word.
enum class Status : std::uint32_t { ok, peer_lost, timeout, mismatch, other_world, left };
struct Header {
  Status status;
  std::int32_t rank;    ///< the rank that the status is about; with other_world: rank 0's WORLD_SIZE
  std::uint64_t bytes;  ///< length of the payload that follows; with timeout it is the list of missing ranks, as text
};

template <typename T>
std::span<std::byte const> bytes_of(T const& value) {
  return std::as_bytes(std::span(&value, 1));
}

class TorchrunBootstrap final : public Bootstrap {
 public:
  TorchrunBootstrap(Job job, std::chrono::milliseconds timeout)
      : job_(std::move(job)), timeout_(timeout), peers_(job_.rank == 0 ? static_cast<std::size_t>(job_.size) : 1) {
    if (job_.size == 1) return;
    Deadline const deadline = Clock::now() + timeout_;
    if (job_.rank == 0) {
      accept_all(deadline);
    } else {
      join(deadline);
    }
  }

  /// Ranks may leave because another one died; ranks that still exchange something are told so.
  ~TorchrunBootstrap() override {
    try {
      if (job_.rank != 0) {
        if (peers_[0].is_open()) (void)peers_[0].send(bytes_of(Header{Status::left, job_.rank, 0}), Clock::now());
      } else if (auto const dead = find_dead()) {
        tell_all({Status::peer_lost, *dead, 0}, {}, Clock::now());
      }
    } catch (std::exception const&) {  // the peers see that this rank has left
    }
  }

  [[nodiscard]] int rank() const noexcept override { return job_.rank; }
  [[nodiscard]] int size() const noexcept override { return job_.size; }
  [[nodiscard]] std::string name() const override { return "torchrun"; }

  [[nodiscard]] std::vector<std::byte> all_gather(std::span<std::byte const> mine) override {
    if (job_.size == 1) return {mine.begin(), mine.end()};
    Deadline const deadline = Clock::now() + timeout_;
    return job_.rank == 0 ? gather_and_tell(mine, deadline) : contribute(mine, deadline);
  }

 private:
  using Clock = StreamSocket::Clock;
  using Deadline = Clock::time_point;
  static constexpr std::chrono::seconds kHelloLimit{5};

  /// Rank 0: one connection per peer, then "all are here" to each. The name is free again before any of them can start
  /// another bootstrap, so that two in a row do not mix.
  void accept_all(Deadline deadline) {
    StreamSocket listener =
        job_.meets_at ? tcp_socket::listen(*job_.meets_at, deadline) : local_socket::listen(job_.name, deadline);
    for (int missing = job_.size - 1; missing > 0;) {
      std::optional<StreamSocket> connection = listener.accept(deadline);
      if (!connection) throw_never_came();
      if (admit(std::move(*connection), deadline)) --missing;
    }
    listener.close();
    tell_all({Status::ok, 0, 0}, {}, deadline);
  }

  /// False when the connection does not belong to this job.
  bool admit(StreamSocket connection, Deadline deadline) {
    Hello hello{};
    if (!job_.meets_at && !connection.peer_is_this_user()) return false;
    // On a network anybody may connect, and then say nothing.
    auto const soon = job_.meets_at ? std::min(deadline, Clock::now() + kHelloLimit) : deadline;
    if (connection.receive(std::as_writable_bytes(std::span(&hello, 1)), soon) != StreamSocket::Result::ok)
      return false;
    if (std::memcmp(hello.magic, kMagic, sizeof kMagic) != 0 || hello.token != job_.token) return false;
    if (hello.size != job_.size) {
      // A rank that was started with another WORLD_SIZE, or one from before a rescaling that is about to end.
      other_world_ = hello;
      (void)connection.send(bytes_of(Header{Status::other_world, job_.size, 0}), soon);
      return false;
    }
    if (hello.rank <= 0 || hello.rank >= job_.size) return false;
    StreamSocket& place = peers_[static_cast<std::size_t>(hello.rank)];
    if (place.is_open()) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("torchrun bootstrap: two processes have RANK={}", hello.rank));
    }
    place = std::move(connection);
    return true;
  }

  [[noreturn]] void throw_never_came() const {
    std::string missing;
    for (int peer = 1; peer < job_.size; ++peer) {
      if (!peers_[static_cast<std::size_t>(peer)].is_open())
        missing += fmt::format("{}{}", missing.empty() ? "" : ", ", peer);
    }
    std::string const came = other_world_
                                 ? fmt::format(" (RANK={} came with WORLD_SIZE={}, rank 0 has {}: give all the same)",
                                               other_world_->rank, other_world_->size, job_.size)
                                 : "";
    throw Error(
        ErrorCode::timeout,
        fmt::format("torchrun bootstrap: rank {} did not connect to rank 0 within {} ms{}; WEFT_TIMEOUT sets the limit",
                    missing, timeout_.count(), came));
  }

  void join(Deadline deadline) {
    std::optional<StreamSocket> connection =
        job_.meets_at ? tcp_socket::connect(*job_.meets_at, deadline) : local_socket::connect(job_.name, deadline);
    if (!connection) {
      throw Error(
          ErrorCode::timeout,
          fmt::format(
              "torchrun bootstrap: rank 0 did not listen for rank {} within {} ms; {} WEFT_TIMEOUT sets "
              "the limit",
              job_.rank, timeout_.count(),
              job_.meets_at
                  ? fmt::format("can this host reach {} (127.* and localhost lead to itself), and is rank 0 there?",
                                job_.meets_at->describe())
                  : "do all ranks have the same MASTER_PORT and run on this host?"));
    }
    peers_[0] = std::move(*connection);
    if (!job_.meets_at && !peers_[0].peer_is_this_user()) {
      throw Error(ErrorCode::system, "torchrun bootstrap: another user's process listens in place of rank 0");
    }
    Hello hello{{}, job_.token, job_.rank, job_.size};
    std::memcpy(hello.magic, kMagic, sizeof kMagic);
    require(0, peers_[0].send(bytes_of(hello), deadline));
    (void)receive_answer(deadline);
  }

  [[noreturn]] void throw_failure(Status status, int about, std::string const& missing = {}) const {
    switch (status) {
      case Status::timeout:
        throw Error(
            ErrorCode::timeout,
            fmt::format("rank {} did not join the start-up exchange within {} ms (seen by rank {}); WEFT_TIMEOUT "
                        "sets the limit",
                        missing.empty() ? std::to_string(about) : missing, timeout_.count(), job_.rank));
      case Status::mismatch:
        throw Error(ErrorCode::mismatch,
                    fmt::format("start-up exchange: rank {} and rank 0 passed different sizes", about));
      case Status::other_world:
        throw Error(ErrorCode::mismatch,
                    fmt::format("torchrun bootstrap: rank {} has WORLD_SIZE={}, rank 0 has {}; give all the same",
                                job_.rank, job_.size, about));
      default:
        throw Error(ErrorCode::peer_lost,
                    fmt::format("rank {} died or left before it joined the start-up exchange (seen by rank {})", about,
                                job_.rank));
    }
  }

  void require(int peer, StreamSocket::Result result) const {
    if (result == StreamSocket::Result::ok) return;
    throw_failure(result == StreamSocket::Result::closed ? Status::peer_lost : Status::timeout, peer);
  }

  Header receive_answer(Deadline deadline) {
    Header answer{};
    require(0, peers_[0].receive(std::as_writable_bytes(std::span(&answer, 1)), deadline));
    if (answer.status == Status::ok) return answer;
    constexpr std::size_t kMostOfARank = 12;  // "2147483647, "; more is not rank 0's
    std::string missing(std::min(answer.bytes, kMostOfARank * static_cast<std::size_t>(job_.size)), ' ');
    require(0, peers_[0].receive(std::as_writable_bytes(std::span(missing)), deadline));
    throw_failure(answer.status, answer.rank, missing);
  }

  std::vector<std::byte> contribute(std::span<std::byte const> mine, Deadline deadline) {
    // Rank 0 reports who is missing at its own deadline; a little patience lets that better message arrive first.
    Deadline const patient = deadline + std::chrono::milliseconds(500);
    auto result = peers_[0].send(bytes_of(Header{Status::ok, job_.rank, mine.size()}), patient);
    if (result == StreamSocket::Result::ok) result = peers_[0].send(mine, patient);
    // If rank 0 closed the connection, it may have said why before.
    if (result != StreamSocket::Result::closed) require(0, result);
    std::vector<std::byte> all(receive_answer(patient).bytes);
    require(0, peers_[0].receive(all, patient));
    return all;
  }

  /// Sends to every peer that is still there; the next exchange finds out if one has gone.
  void tell_all(Header const& header, std::span<std::byte const> payload, Deadline deadline) {
    for (std::size_t peer = 1; peer < peers_.size(); ++peer) {
      if (peers_[peer].send(bytes_of(header), deadline) == StreamSocket::Result::ok) {
        (void)peers_[peer].send(payload, deadline);
      }
    }
  }

  /// Rank 0: a peer that has gone without saying so, other than `leaver`, whose message has been read.
  [[nodiscard]] std::optional<int> find_dead(std::size_t leaver = 0) const {
    for (std::size_t peer = 1; peer < peers_.size(); ++peer) {
      if (peer == leaver || !peers_[peer].is_open() || !peers_[peer].peer_has_closed()) continue;
      Header said{};
      if (peers_[peer].peek(std::as_writable_bytes(std::span(&said, 1))) && said.status == Status::left) continue;
      return static_cast<int>(peer);
    }
    return std::nullopt;
  }

  [[noreturn]] void fail_all(Status status, int about, std::string const& missing = {}) {
    auto const payload = std::as_bytes(std::span(missing));
    tell_all({status, about, payload.size()}, payload, Clock::now() + std::chrono::seconds(1));
    throw_failure(status, about, missing);
  }

  std::vector<std::byte> gather_and_tell(std::span<std::byte const> mine, Deadline deadline) {
    std::vector<std::byte> all(mine.size() * peers_.size());
    std::copy(mine.begin(), mine.end(), all.begin());
    std::vector<std::size_t> outstanding;
    for (std::size_t peer = 1; peer < peers_.size(); ++peer) outstanding.push_back(peer);
    while (!outstanding.empty()) {
      // In order of arrival, so that the loss of any peer is seen at once.
      std::optional<std::size_t> const ready = StreamSocket::wait_any(peers_, outstanding, deadline);
      if (!ready) {
        fail_all(Status::timeout, static_cast<int>(outstanding.front()),
                 fmt::format("{}", fmt::join(outstanding, ", ")));
      }
      std::size_t const peer = outstanding[*ready];
      receive_part(peer, std::span(all).subspan(peer * mine.size(), mine.size()), deadline);
      outstanding.erase(outstanding.begin() + static_cast<std::ptrdiff_t>(*ready));
    }
    tell_all({Status::ok, 0, all.size()}, all, deadline);
    return all;
  }

  void receive_part(std::size_t peer, std::span<std::byte> part, Deadline deadline) {
    Header header{};
    auto result = peers_[peer].receive(std::as_writable_bytes(std::span(&header, 1)), deadline);
    if (result == StreamSocket::Result::ok) {
      if (header.status == Status::left) fail_all(Status::peer_lost, find_dead(peer).value_or(static_cast<int>(peer)));
      if (header.bytes != part.size()) fail_all(Status::mismatch, static_cast<int>(peer));
      result = peers_[peer].receive(part, deadline);
    }
    if (result == StreamSocket::Result::closed) fail_all(Status::peer_lost, static_cast<int>(peer));
    if (result == StreamSocket::Result::timed_out) fail_all(Status::timeout, static_cast<int>(peer));
  }

  Job job_;
  std::chrono::milliseconds timeout_;
  std::optional<Hello> other_world_;  ///< rank 0: what one of another WORLD_SIZE said
  std::vector<StreamSocket> peers_;   ///< rank 0: by rank, [0] unused; others: [0] is rank 0
};

}  // namespace

std::shared_ptr<Bootstrap> torchrun_bootstrap(Config const& config) {
  config.check();
  return std::make_shared<TorchrunBootstrap>(read_job(), config.timeout);
}

}  // namespace weft
