#include "common/command_line.hpp"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <utility>

#include "common/parse_size.hpp"
#include "weft/version.hpp"

namespace weft::perf {
namespace {

constexpr int kBadUsage = 2;

/// "4K" as "4096".
std::string to_bytes(std::string const& text) {
  auto const bytes = parse_size(text);
  if (!bytes) throw CLI::ValidationError("'" + text + "' is no size (a number, K, M or G may follow)");
  return std::to_string(*bytes);
}

std::string not_negative(std::string const& text) {
  return text.starts_with('-') ? text + " is less than 0" : std::string();
}

template <typename Number>
void add_number(CLI::App& app, std::string const& names, Number& value, std::string const& help, Range range) {
  auto* const option = app.add_option(names, value, help)->capture_default_str();
  if (range.most < Range{}.most) {
    option->check(CLI::Range(static_cast<Number>(range.least), static_cast<Number>(range.most)));
  } else {
    option->check(not_negative);
  }
}

template <typename Values>
CLI::Option* add_values(CLI::App& app, std::string const& names, Values& values, std::string const& help) {
  return app.add_option(names, values, help)->delimiter(',')->capture_default_str();
}

}  // namespace

CommandLine::CommandLine(std::string name, std::string const& about)
    : name_(std::move(name)), app_(std::make_unique<CLI::App>(about, name_)) {
  app_->set_version_flag("--version", name_ + " " WEFT_VERSION_STRING);
}

CommandLine::~CommandLine() = default;

void CommandLine::add(std::string const& names, int& value, std::string const& help, Range range) {
  add_number(*app_, names, value, help, range);
}

void CommandLine::add(std::string const& names, std::size_t& value, std::string const& help, Range range) {
  add_number(*app_, names, value, help, range);
}

void CommandLine::add(std::string const& names, std::optional<std::size_t>& value, std::string const& help) {
  app_->add_option(names, value, help)->check(not_negative);
}

void CommandLine::add(std::string const& names, double& value, std::string const& help, Range range) {
  add_number(*app_, names, value, help, range);
}

void CommandLine::add(std::string const& names, std::vector<std::size_t>& values, std::string const& help) {
  add_values(*app_, names, values, help)->check(not_negative);
}

void CommandLine::add(std::string const& names, std::vector<double>& values, std::string const& help) {
  add_values(*app_, names, values, help);
}

void CommandLine::add(std::string const& names, std::string& value, std::string const& help,
                      std::initializer_list<char const*> choices) {
  auto* const option = app_->add_option(names, value, help)->capture_default_str();
  if (choices.size() > 0) option->check(CLI::IsMember(std::vector<std::string>(choices.begin(), choices.end())));
}

void CommandLine::add_choice(std::string const& names, bool& value, std::string const& help) {
  app_->add_option(names, value, help)->check(CLI::IsMember({"0", "1"}))->capture_default_str();
}

void CommandLine::add_flag(std::string const& names, bool& value, std::string const& help) {
  app_->add_flag(names, value, help);
}

void CommandLine::add_bytes(std::string const& names, std::size_t& value, std::string const& help) {
  app_->add_option(names, value, help)->transform(to_bytes)->capture_default_str();
}

void CommandLine::add_bytes(std::string const& names, std::vector<std::size_t>& values, std::string const& help) {
  add_values(*app_, names, values, help)->transform(to_bytes);
}

std::optional<int> CommandLine::parse(int argc, char const* const* argv) {
  try {
    app_->parse(argc, argv);
  } catch (CLI::Success const& done) {
    return app_->exit(done);
  } catch (CLI::Error const& error) {
    std::fprintf(stderr, "%s: %s\n", name_.c_str(), error.what());
    return kBadUsage;
  }
  return std::nullopt;
}

}  // namespace weft::perf
