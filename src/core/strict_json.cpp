#include "core/strict_json.hpp"

#include <vector>

namespace weft {
namespace {

using Json = nlohmann::json;

/// Builds the value that a text is. The library's own way to look on while it does so goes through all members of an
/// object for each that ends.
class Reader final : public nlohmann::json_sax<Json> {
 public:
  Reader(std::size_t deepest, Json& into) : deepest_(deepest), next_(&into) {}

  bool null() override { return put(nullptr); }
  bool boolean(bool value) override { return put(value); }
  bool number_integer(number_integer_t value) override { return put(value); }
  bool number_unsigned(number_unsigned_t value) override { return put(value); }
  bool number_float(number_float_t value, string_t const&) override { return put(value); }
  bool string(string_t& value) override { return put(std::move(value)); }
  bool binary(binary_t& value) override { return put(std::move(value)); }
  bool start_object(std::size_t) override { return open(Json::object()); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    auto const [member, is_new] = open_.back()->get_ref<Json::object_t&>().try_emplace(name);
    if (!is_new) throw RefusedJson(name);
    next_ = &member->second;
    return true;
  }
  bool parse_error(std::size_t, std::string const&, Json::exception const& found) override {
    if (auto const* const beyond = dynamic_cast<Json::out_of_range const*>(&found)) throw *beyond;
    throw dynamic_cast<Json::parse_error const&>(found);
  }

 private:
  /// Where it goes: into the array that is open, or where the last name, or nothing yet, says.
  bool put(Json value) {
    if (!open_.empty() && open_.back()->is_array()) {
      open_.back()->push_back(std::move(value));
      next_ = &open_.back()->back();
    } else {
      *next_ = std::move(value);
    }
    return true;
  }
  bool open(Json value) {
    if (open_.size() == deepest_) throw RefusedJson(std::nullopt);
    put(std::move(value));
    open_.push_back(next_);
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  std::size_t deepest_;
  Json* next_;               ///< what is written next, or was last
  std::vector<Json*> open_;  ///< objects and arrays that are not closed; none moves while those within are open
};

}  // namespace

nlohmann::json parse_strict_json(std::string_view text, std::size_t deepest) {
  Json json;
  Reader reader(deepest, json);
  Json::sax_parse(text, &reader);
  return json;
}

}  // namespace weft
