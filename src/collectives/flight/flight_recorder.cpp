#include "collectives/flight/flight_recorder.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <span>
#include <system_error>

#include "collectives/flight/communicators_begun.hpp"
#include "collectives/flight/flight_registry.hpp"
#include "core/describe_errno.hpp"
#include "core/host_identity.hpp"
#include "core/log.hpp"

namespace weft {
namespace {

using nlohmann::json;
using std::chrono::nanoseconds;
using SteadyTime = std::chrono::steady_clock::time_point;

constexpr int kSchema = 1;
constexpr std::size_t kKeptFailures = 16;

std::uint64_t random_number() {
  std::random_device source;
  return (std::uint64_t{source()} << 32U) | source();
}

/// A random number of rank 0, the same on every rank.
std::uint64_t agree_on_number(Bootstrap& bootstrap) {
  auto const mine = random_number();
  auto const all = bootstrap.all_gather(std::as_bytes(std::span(&mine, 1)));
  std::uint64_t first = 0;
  std::memcpy(&first, all.data(), sizeof first);
  return first;
}

/// Converts times of the steady clock to nanoseconds of Unix time, by the clocks' offset at one instant; unknown times
/// become null.
class WallClock {
 public:
  WallClock()
      : now_(std::chrono::duration_cast<nanoseconds>(std::chrono::system_clock::now().time_since_epoch())),
        offset_(now_ - std::chrono::steady_clock::now().time_since_epoch()) {}

  [[nodiscard]] json at(SteadyTime time) const {
    return time == SteadyTime{} ? json() : json((time.time_since_epoch() + offset_).count());
  }
  [[nodiscard]] std::int64_t now() const noexcept { return now_.count(); }

 private:
  nanoseconds now_;
  nanoseconds offset_;
};

json to_json(FlightEntry const& entry, WallClock const& clock) {
  auto const& contract = entry.contract;
  return {{"sequence", entry.sequence},
          {"call", describe(contract)},
          {"operation", to_string(contract.operation)},
          {"merged", std::max<int>(1, contract.group.calls)},
          {"count", contract.count},
          {"dtype", to_string(contract.dtype)},
          {"reduction", to_string(contract.reduce)},
          {"root", contract.tag() == 0 ? contract.root : 0},
          {"tag", contract.tag()},
          {"bytes", contract.count * size_of(contract.dtype)},
          {"on", entry.on_stream ? "stream" : "caller"},
          {"state", to_string(entry.state)},
          {"path", entry.route.how == Route::How::unknown ? json() : json(describe(entry.route))},
          {"enqueued_ns", clock.at(entry.enqueued)},
          {"started_ns", clock.at(entry.started)},
          {"finished_ns", clock.at(entry.finished)}};
}

/// "recv(7 × f32, from any rank, tag 3)"
std::string describe(Message const& message, Contract const& contract) {
  auto text = weft::describe(contract);
  if (message.peer < 0) text = fmt::format("recv({} × {}, from any rank)", contract.count, to_string(contract.dtype));
  if (message.has_tag) text.insert(text.size() - 1, fmt::format(", tag {}", message.tag));
  return text;
}

json to_json(MessageEntry const& entry, WallClock const& clock) {
  auto const& message = entry.message;
  auto const sends = message.direction == Message::Direction::send;
  Contract const contract{.count = message.bytes / size_of(message.dtype),
                          .root = static_cast<std::uint32_t>(message.peer),
                          .operation = sends ? Operation::send : Operation::receive,
                          .dtype = message.dtype};
  return {{"message", describe(message, contract)},
          {"operation", to_string(contract.operation)},
          {"peer", message.peer},
          {"number", message.peer < 0 ? 0 : message.number + 1},
          {"tag", message.has_tag ? json(message.tag) : json()},
          {"count", contract.count},
          {"dtype", to_string(message.dtype)},
          {"bytes", message.bytes},
          {"on", entry.on_stream ? "stream" : "caller"},
          {"state", to_string(entry.state)},
          {"started_ns", clock.at(entry.started)},
          {"finished_ns", clock.at(entry.finished)}};
}

/// Writes a file that appears whole or not at all.
void write_file(std::filesystem::path const& path, std::string const& content) {
  auto temporary = path;
  temporary += ".part";
  std::ofstream file(temporary, std::ios::binary | std::ios::trunc);
  file << content << '\n';
  file.close();
  if (!file) {
    throw Error(ErrorCode::system, fmt::format("flight recorder: cannot write {}: {}; set WEFT_FLIGHT_DIR to a folder "
                                               "this process may write to",
                                               temporary.string(), describe_errno(errno)));
  }
  std::filesystem::rename(temporary, path);
}

}  // namespace

std::shared_ptr<FlightRecorder> FlightRecorder::create(Bootstrap& bootstrap, Config const& config,
                                                       std::string const& name) {
  FlightIdentity identity{.communicator = agree_on_number(bootstrap),
                          .rank = bootstrap.rank(),
                          .size = bootstrap.size(),
                          .pid = ::getpid(),
                          .host = host_name(),
                          .name = name};
  auto recorder = std::make_shared<FlightRecorder>(std::move(identity), config);
  if (config.flight_recorder > 0) register_flight_recorder(recorder);
  return recorder;
}

FlightRecorder::FlightRecorder(FlightIdentity identity, Config const& config)
    : identity_(std::move(identity)),
      directory_(config.flight_directory),
      ring_(config.flight_recorder),
      message_ring_(config.flight_recorder) {}

void FlightRecorder::fail(Call const& call, std::exception const& error) noexcept {
  ring_.finish(call, FlightState::failed);
  note({&call.sequence, 1}, false, error);
}

void FlightRecorder::fail(RecordedTransfer const& transfer, std::exception const& error) noexcept {
  note(transfer.records(), true, error);
}

void FlightRecorder::note(std::span<std::uint64_t const> numbers, bool of_messages,
                          std::exception const& error) noexcept {
  if (ring_.capacity() == 0) return;
  try {
    auto const* const known = dynamic_cast<Error const*>(&error);
    auto const code = known ? std::string(weft::to_string(known->code())) : "other";
    {
      std::scoped_lock const lock(mutex_);
      for (auto const number : numbers) failures_.push_back({of_messages, number, code, error.what()});
      while (failures_.size() > kKeptFailures) failures_.pop_front();
    }
    if (known) dump_once(known->code());
  } catch (std::exception const& trouble) {  // the caller gets `error`, which matters more
    log(LogLevel::warn, fmt::format("rank {}: flight recorder: {}", identity_.rank, trouble.what()));
  }
}

void FlightRecorder::dump_once(ErrorCode code) noexcept {
  bool const wanted = code == ErrorCode::peer_lost || code == ErrorCode::timeout || code == ErrorCode::mismatch ||
                      code == ErrorCode::aborted;
  if (!wanted || !directory_ || dumped_.exchange(true)) return;
  try {
    auto const path = dump(std::string(weft::to_string(code)));
    log(LogLevel::info, fmt::format("rank {}: last calls written to {}", identity_.rank, path.string()));
  } catch (std::exception const& trouble) {
    log(LogLevel::warn, fmt::format("rank {}: {}", identity_.rank, trouble.what()));
  }
}

std::optional<FlightRecorder::Failure> FlightRecorder::failure_of(bool of_message, std::uint64_t number) const {
  std::scoped_lock const lock(mutex_);
  auto const found = std::find_if(failures_.begin(), failures_.end(), [&](auto const& one) {
    return one.of_message == of_message && one.number == number;
  });
  return found == failures_.end() ? std::nullopt : std::optional(*found);
}

std::string FlightRecorder::to_json(std::string const& reason) const {
  WallClock const clock;
  auto const add_failure = [&](json& entry, FlightState state, bool of_message, std::uint64_t number) {
    if (state != FlightState::failed) return;
    if (auto const failure = failure_of(of_message, number)) {
      entry["error"] = {{"code", failure->code}, {"text", failure->text}};
    }
  };
  auto calls = json::array();
  std::uint64_t issued = 0;
  for (auto const& entry : ring_.entries()) {
    calls.push_back(weft::to_json(entry, clock));
    add_failure(calls.back(), entry.state, false, entry.sequence);
    issued = entry.sequence;
  }
  auto messages = json::array();
  for (auto const& entry : message_ring_.entries()) {
    messages.push_back(weft::to_json(entry, clock));
    add_failure(messages.back(), entry.state, true, entry.record);
  }
  auto begun = json::array();
  for (auto const& one : begun_communicators()) {
    begun.push_back({{"name", one.name}, {"rank", one.rank}, {"size", one.size}, {"since_ns", clock.at(one.since)}});
  }
  json const file{{"weft_flight", kSchema},          {"communicator", fmt::format("{:016x}", identity_.communicator)},
                  {"name", identity_.name},          {"rank", identity_.rank},
                  {"size", identity_.size},          {"pid", identity_.pid},
                  {"host", identity_.host},          {"reason", reason},
                  {"written_ns", clock.now()},       {"issued", std::max(issued, ring_.issued())},
                  {"ended", ring_.ended()},          {"calls", std::move(calls)},
                  {"messages", std::move(messages)}, {"begun", std::move(begun)}};
  return file.dump(1, ' ', false, json::error_handler_t::replace);
}

std::filesystem::path FlightRecorder::dump(std::string const& reason) const {
  std::scoped_lock const lock(writing_);  // a failed call, a signal and the program may ask for it at the same time
  std::filesystem::path const folder = directory_.value_or(".");
  try {
    std::filesystem::create_directories(folder);
    auto path = folder / fmt::format("weft-flight.{}.{}.{:016x}.rank{}.json", identity_.host, identity_.pid,
                                     identity_.communicator, identity_.rank);
    write_file(path, to_json(reason));
    return path;
  } catch (std::filesystem::filesystem_error const& trouble) {
    throw Error(ErrorCode::system, fmt::format("flight recorder: {}; set WEFT_FLIGHT_DIR to a folder this process may "
                                               "write to",
                                               trouble.what()));
  }
}

}  // namespace weft
