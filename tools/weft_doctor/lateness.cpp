#include "weft_doctor/lateness.hpp"

#include <algorithm>
#include <cstddef>
#include <map>

namespace weft::doctor {

namespace {

/// How long each rank was in a call, by its place among the dumps.
using Stays = std::vector<std::int64_t>;

/// Ranks leave a call with a root at different times: those say nothing of when they came.
bool counts(RecordedCall const& call) {
  return call.state == State::finished && call.started_ns && call.finished_ns &&
         call.text.find("root ") == std::string::npos;
}

std::map<std::uint64_t, Stays> stays_of(std::vector<Dump const*> const& dumps) {
  std::map<std::uint64_t, Stays> stays;
  for (auto const* dump : dumps) {
    for (auto const& call : dump->calls) {
      if (counts(call)) stays[call.sequence].push_back(*call.finished_ns - *call.started_ns);
    }
  }
  std::erase_if(stays, [&](auto const& call) { return call.second.size() != dumps.size(); });
  return stays;
}

}  // namespace

std::optional<Lateness> find_lateness(std::vector<Dump const*> const& dumps) {
  auto const stays = stays_of(dumps);
  if (stays.empty()) return std::nullopt;
  std::vector<std::int64_t> waited(dumps.size(), 0);
  std::vector<std::int64_t> longest(dumps.size(), 0);  // left out: ranks do not begin at the same time
  for (auto const& [sequence, stay] : stays) {
    auto const [least, most] = std::minmax_element(stay.begin(), stay.end());
    auto const last = static_cast<std::size_t>(least - stay.begin());
    waited[last] += *most - *least;
    longest[last] = std::max(longest[last], *most - *least);
  }
  for (std::size_t i = 0; i < dumps.size(); ++i) waited[i] -= longest[i];
  auto const latest = static_cast<std::size_t>(std::max_element(waited.begin(), waited.end()) - waited.begin());
  std::int64_t begin = 0;
  std::int64_t end = 0;
  for (auto const& call : dumps.front()->calls) {
    if (call.sequence == stays.begin()->first) begin = *call.started_ns;
    if (call.sequence == stays.rbegin()->first) end = *call.finished_ns;
  }
  if (waited[latest] <= 0 || waited[latest] < (end - begin) / 10) return std::nullopt;
  return Lateness{dumps[latest]->rank, waited[latest], end - begin};
}

}  // namespace weft::doctor
