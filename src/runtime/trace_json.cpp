#include "runtime/trace_json.hpp"

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "weft/error.hpp"

namespace weft {

namespace {

using nlohmann::json;
using std::chrono::nanoseconds;

constexpr Trace::Lane kLanes[] = {Trace::Lane::compute, Trace::Lane::communication};

char const* name_of(Trace::Lane lane) noexcept {
  return lane == Trace::Lane::compute ? "compute" : "communication";
}

std::int64_t to_ns(TimePoint time) {
  return nanoseconds(time.time_since_epoch()).count();
}

TimePoint from_ns(std::int64_t ns) {
  return TimePoint(nanoseconds(ns));
}

double to_us(nanoseconds duration) {
  return std::chrono::duration<double, std::micro>(duration).count();
}

TimePoint earliest_start(std::span<std::vector<Trace::Span> const> ranks) {
  auto earliest = TimePoint::max();
  for (auto const& spans : ranks) {
    for (auto const& span : spans) earliest = std::min(earliest, span.interval.start);
  }
  return earliest;
}

json metadata(char const* what, std::size_t rank, int lane, json args) {
  return {{"ph", "M"}, {"name", what}, {"pid", rank}, {"tid", lane}, {"args", std::move(args)}};
}

json complete_event(Trace::Span const& span, std::size_t rank, TimePoint origin) {
  json event{{"ph", "X"},
             {"name", span.name},
             {"cat", name_of(span.lane)},
             {"pid", rank},
             {"tid", static_cast<int>(span.lane)},
             {"ts", to_us(span.interval.start - origin)},
             {"dur", to_us(span.interval.end - span.interval.start)}};
  if (span.bytes > 0) event["args"] = {{"bytes", span.bytes}};
  return event;
}

Trace::Span decode_span(json const& fields) {
  auto const lane = fields.at(0).get<int>() == 0 ? Trace::Lane::compute : Trace::Lane::communication;
  return {.lane = lane,
          .name = fields.at(1).get<std::string>(),
          .interval = {from_ns(fields.at(2).get<std::int64_t>()), from_ns(fields.at(3).get<std::int64_t>())},
          .bytes = fields.at(4).get<std::size_t>()};
}

}  // namespace

std::vector<std::byte> encode_spans(std::span<Trace::Span const> spans) {
  auto all = json::array();
  for (auto const& span : spans) {
    all.push_back(json::array(
        {static_cast<int>(span.lane), span.name, to_ns(span.interval.start), to_ns(span.interval.end), span.bytes}));
  }
  auto const encoded = json::to_cbor(all);
  auto const bytes = std::as_bytes(std::span(encoded));
  return {bytes.begin(), bytes.end()};
}

std::vector<Trace::Span> decode_spans(std::span<std::byte const> bytes) {
  auto const* first = reinterpret_cast<std::uint8_t const*>(bytes.data());
  std::vector<Trace::Span> spans;
  try {
    for (auto const& fields : json::from_cbor(first, first + bytes.size())) spans.push_back(decode_span(fields));
  } catch (json::exception const& failure) {
    throw Error(ErrorCode::system,
                std::string("Trace::write: a rank's intervals did not arrive whole: ") + failure.what());
  }
  return spans;
}

std::string chrome_trace(std::span<std::vector<Trace::Span> const> ranks) {
  auto const origin = earliest_start(ranks);
  auto events = json::array();
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    events.push_back(metadata("process_name", rank, 0, {{"name", "rank " + std::to_string(rank)}}));
    events.push_back(metadata("process_sort_index", rank, 0, {{"sort_index", rank}}));
    for (auto const lane : kLanes) {
      events.push_back(metadata("thread_name", rank, static_cast<int>(lane), {{"name", name_of(lane)}}));
    }
    for (auto const& span : ranks[rank]) events.push_back(complete_event(span, rank, origin));
  }
  json const file{{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events)}};
  // A name that is not UTF-8 is shown with replacement characters rather than losing the file.
  return file.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace weft
