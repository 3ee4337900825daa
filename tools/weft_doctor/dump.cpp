#include "weft_doctor/dump.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>

namespace weft::doctor {
namespace {

using nlohmann::json;

constexpr int kSchema = 1;

std::string first_line(std::string const& text) {
  return text.substr(0, text.find('\n'));
}

State parse_state(std::string const& name) {
  if (name == "enqueued") return State::enqueued;
  if (name == "started") return State::started;
  if (name == "finished") return State::finished;
  if (name == "failed") return State::failed;
  throw BadInput(fmt::format("unknown state '{}'", name));
}

std::optional<std::int64_t> parse_time(json const& call, char const* name) {
  auto const& time = call.at(name);
  return time.is_null() ? std::nullopt : std::optional(time.get<std::int64_t>());
}

/// get<int>() would cut off what does not fit.
int parse_int(json const& from, char const* name) {
  constexpr int kMost = std::numeric_limits<int>::max();
  auto const& value = from.at(name);
  bool const is_small = value.is_number_unsigned() ? value.get<std::uint64_t>() <= kMost
                                                   : value.is_number_integer() && value.get<std::int64_t>() >= -kMost;
  if (!is_small) {  // dump() of what is nested deeper than any stack would never return
    throw BadInput(fmt::format("its \"{}\" is {}", name, value.is_structured() ? value.type_name() : value.dump()));
  }
  return value.get<int>();
}

RecordedCall parse_call(json const& from) {
  RecordedCall call{.sequence = from.at("sequence").get<std::uint64_t>(),
                    .text = from.at("call").get<std::string>(),
                    .state = parse_state(from.at("state").get<std::string>()),
                    .enqueued_ns = parse_time(from, "enqueued_ns"),
                    .started_ns = parse_time(from, "started_ns"),
                    .finished_ns = parse_time(from, "finished_ns")};
  if (from.contains("path") && from["path"].is_string()) call.path = from["path"].get<std::string>();
  if (from.contains("error")) {
    call.error_code = from["error"].at("code").get<std::string>();
    call.error_text = from["error"].at("text").get<std::string>();
  }
  return call;
}

RecordedMessage parse_message(json const& from) {
  RecordedMessage message{.text = from.at("message").get<std::string>(),
                          .sends = from.at("operation").get<std::string>() == "send",
                          .peer = parse_int(from, "peer"),
                          .number = from.at("number").get<std::uint64_t>(),
                          .state = parse_state(from.at("state").get<std::string>()),
                          .started_ns = parse_time(from, "started_ns"),
                          .finished_ns = parse_time(from, "finished_ns")};
  if (from.contains("tag") && !from["tag"].is_null()) message.tag = parse_int(from, "tag");
  if (from.contains("error")) {
    message.error_code = from["error"].at("code").get<std::string>();
    message.error_text = from["error"].at("text").get<std::string>();
  }
  return message;
}

BegunCommunicator parse_begun(json const& from) {
  BegunCommunicator begun{.name = from.at("name").get<std::string>(),
                          .rank = parse_int(from, "rank"),
                          .size = parse_int(from, "size"),
                          .since_ns = from.at("since_ns").get<std::int64_t>()};
  if (begun.size < 1 || begun.rank < 0 || begun.rank >= begun.size) {
    throw BadInput(fmt::format("it says rank {} of {} of a communicator that was begun", begun.rank, begun.size));
  }
  return begun;
}

Dump parse_fields(json const& from) {
  if (int const schema = parse_int(from, "weft_flight"); schema != kSchema) {
    throw BadInput(fmt::format("its format is {}, this weft-doctor reads {}", schema, kSchema));
  }
  Dump dump{.file = {},
            .communicator = from.at("communicator").get<std::string>(),
            .name = from.value("name", std::string()),
            .rank = parse_int(from, "rank"),
            .size = parse_int(from, "size"),
            .pid = from.at("pid").get<long>(),
            .host = from.at("host").get<std::string>(),
            .written_ns = from.at("written_ns").get<std::int64_t>(),
            .calls = {}};
  if (dump.size < 1 || dump.rank < 0 || dump.rank >= dump.size) {
    throw BadInput(fmt::format("it says rank {} of {}", dump.rank, dump.size));
  }
  for (auto const& call : from.at("calls")) dump.calls.push_back(parse_call(call));
  if (from.contains("messages")) {  // they came later than the format
    for (auto const& message : from["messages"]) dump.messages.push_back(parse_message(message));
  }
  if (from.contains("begun")) {
    for (auto const& begun : from["begun"]) dump.begun.push_back(parse_begun(begun));
  }
  for (auto const& message : dump.messages) {
    if (message.is_from_any() || (message.peer >= 0 && message.peer < dump.size)) continue;
    throw BadInput(fmt::format("it has a message to or from rank {} of {}", message.peer, dump.size));
  }
  std::sort(dump.calls.begin(), dump.calls.end(), [](auto const& a, auto const& b) { return a.sequence < b.sequence; });
  return dump;
}

std::string read_file(std::filesystem::path const& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw BadInput(fmt::format("cannot read {}: {}", path.string(), std::strerror(errno)));
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::filesystem::path> dumps_in(std::filesystem::path const& folder) {
  std::vector<std::filesystem::path> found;
  for (auto const& entry : std::filesystem::directory_iterator(folder)) {
    auto const name = entry.path().filename().string();
    if (name.rfind("weft-flight.", 0) == 0 && entry.path().extension() == ".json" && entry.is_regular_file())
      found.push_back(entry.path());
  }
  if (found.empty()) throw BadInput(fmt::format("there is no weft-flight.*.json in {}", folder.string()));
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace

Dump parse_dump(std::string const& file, std::string const& text) {
  if (text.find_first_not_of(" \t\r\n") == std::string::npos) throw BadInput(fmt::format("{} is empty", file));
  try {
    auto dump = parse_fields(json::parse(text));
    dump.file = file;
    return dump;
  } catch (std::exception const& trouble) {
    throw BadInput(fmt::format("{} is no flight recorder's dump: {}", file, first_line(trouble.what())));
  }
}

std::vector<Dump> read_dumps(std::vector<std::string> const& paths) {
  std::vector<Dump> dumps;
  for (auto const& path : paths) {
    std::error_code none;
    if (std::filesystem::is_directory(path, none)) {
      for (auto const& file : dumps_in(path)) dumps.push_back(parse_dump(file.string(), read_file(file)));
    } else {
      dumps.push_back(parse_dump(path, read_file(path)));
    }
  }
  return dumps;
}

}  // namespace weft::doctor
