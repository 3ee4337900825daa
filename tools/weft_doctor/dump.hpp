#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace weft::doctor {

/// An error whose text is one line that says which dump cannot be used, and why.
struct BadInput : std::runtime_error {
  using std::runtime_error::runtime_error;
};

enum class State { enqueued, started, finished, failed };

/// One call of one rank. Times are nanoseconds of Unix time, absent where unknown.
struct RecordedCall {
  std::uint64_t sequence = 0;  ///< from 1
  std::string text;            ///< "all_reduce(1024 × f32, sum)": equal on ranks that made equal calls
  State state = State::finished;
  std::optional<std::int64_t> enqueued_ns{};
  std::optional<std::int64_t> started_ns{};
  std::optional<std::int64_t> finished_ns{};
  std::string path{};        ///< how its bytes were moved, e.g. "zero copy"; empty if the dump does not tell
  std::string error_code{};  ///< of a failed call: "timeout", "peer_lost", …
  std::string error_text{};
};

/// One message of one rank: half of a transfer between two.
struct RecordedMessage {
  std::string text;          ///< "recv(1024 × f32, from rank 3)"
  bool sends = false;        ///< else receives
  int peer = 0;              ///< the other rank; kAnyRank if a receive accepts messages from any rank
  std::uint64_t number = 0;  ///< from 1, among the messages with this tag in this direction between the two ranks
  State state = State::finished;
  std::optional<std::int64_t> started_ns{};
  std::optional<std::int64_t> finished_ns{};
  std::string error_code{};
  std::string error_text{};
  std::optional<int> tag{};

  static constexpr int kAnyRank = -1;
  [[nodiscard]] bool is_from_any() const noexcept { return !sends && peer == kAnyRank; }
};

/// A communicator that the rank's process was making when it wrote the dump; other ranks had not come yet.
struct BegunCommunicator {
  std::string name;  ///< may be empty
  int rank = 0;
  int size = 1;
  std::int64_t since_ns = 0;
};

/// The dump of one rank of one communicator. docs/debugging-hangs.md describes the file's format.
struct Dump {
  std::string file;
  std::string communicator;
  std::string name{};  ///< the application's name for the communicator; may be empty
  int rank = 0;
  int size = 1;
  long pid = 0;
  std::string host;
  std::int64_t written_ns = 0;
  std::vector<RecordedCall> calls;          ///< by sequence
  std::vector<RecordedMessage> messages{};  ///< by start
  std::vector<BegunCommunicator> begun{};
};

/// Parses a dump; `file` is its name for error messages. @throws BadInput
[[nodiscard]] Dump parse_dump(std::string const& file, std::string const& text);

/// Reads the given files, and every weft-flight.*.json in the given folders. @throws BadInput
[[nodiscard]] std::vector<Dump> read_dumps(std::vector<std::string> const& paths);

}  // namespace weft::doctor
