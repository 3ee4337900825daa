#include "importers/kineto/message.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "importers/common/json_input.hpp"
#include "weft/error.hpp"

namespace weft::kineto {

namespace {

using Json = nlohmann::json;

constexpr int kDeepest = 8;

class MessageReader {
 public:
  MessageReader(Event const& event, std::string const& source) : event_(event), args_(*event.args), source_(source) {}

  std::optional<Message> read() {
    Message message;
    message.group = group();
    auto const name = text_in(args_, "Collective name");
    if (!name.empty()) message.kind = collective_kind_named(name);
    if (args_.contains("In msg nelems") || args_.contains("Out msg nelems")) {
      auto const most = std::max(whole_in(args_, "In msg nelems", 0), whole_in(args_, "Out msg nelems", 0));
      if (most < 0) refuse(fmt::format("{} elements", most));
      message.bytes = static_cast<double>(most) * static_cast<double>(element_bytes(text_in(args_, "dtype")));
    } else if (args_.contains("Input Dims") && args_["Input Dims"].is_array()) {
      message.only_input = event_.collective->evidence == CollectiveEvidence::title;
      message.bytes = input_bytes(args_["Input Dims"]);
    } else if (name.empty()) {
      return std::nullopt;
    }
    message.unknown_type = unknown_type_;
    return message;
  }

 private:
  [[noreturn]] void refuse(std::string const& why) const {
    throw Error(ErrorCode::invalid_argument, fmt::format("{}: event ({}): {}", source_, event_.name, why));
  }

  GroupFacts group() const {
    GroupFacts facts{.name = text_in(args_, "Process Group Name"),
                     .size = whole_in(args_, "Group size", 0),
                     .first_rank = whole_in(args_, "Global rank start", 0),
                     .stride = whole_in(args_, "Global rank stride", 1)};
    // "[0, 1, 2]"; long ones are cut short with "...".
    auto const ranks = text_in(args_, "Process Group Ranks");
    if (ranks.find("...") != std::string::npos) return facts;
    std::string digits = ranks;
    std::replace_if(
        digits.begin(), digits.end(), [](char c) { return c < '0' || c > '9'; }, ' ');
    std::istringstream in(digits);
    for (int rank = 0; in >> rank;) facts.ranks.push_back(rank);
    return facts;
  }

  std::int64_t element_bytes(std::string const& type) {
    if (auto const bytes = element_bytes_named(type)) return *bytes;
    unknown_type_ = type.empty() ? "none" : type;
    return Message::kWidestElement;
  }

  /// Bytes of the largest argument.
  double input_bytes(Json const& dims) {
    Json const types = args_.contains("Input type") ? args_["Input type"] : Json::array();
    double most = 0;
    for (std::size_t i = 0; i < dims.size(); ++i) {
      double const count = elements(dims[i], 0);
      if (count <= 0) continue;
      bool const told = types.is_array() && i < types.size() && types[i].is_string();
      auto const type = told ? types[i].get<std::string>() : std::string();
      most = std::max(most, count * static_cast<double>(element_bytes(type)));
    }
    return most;
  }

  /// Elements of a shape, or of all shapes in a list of them. An empty one has no elements.
  double elements(Json const& shape, int depth) const {
    if (!shape.is_array() || shape.empty() || depth > kDeepest) return 0;
    double product = 1;
    double sum = 0;
    for (auto const& part : shape) {
      if (part.is_array()) {
        sum += elements(part, depth + 1);
        product = 0;
      } else if (part.is_number()) {
        if (part.get<double>() < 0) refuse(fmt::format("a dimension of {}", part.dump()));
        product *= part.get<double>();
      }
    }
    return product + sum;
  }

  Event const& event_;
  Json const& args_;
  std::string const& source_;
  std::string unknown_type_;
};

}  // namespace

std::optional<Message> message_of(Event const& event, std::string const& source) {
  if (event.args == nullptr || !event.collective) return std::nullopt;
  return MessageReader(event, source).read();
}

}  // namespace weft::kineto
