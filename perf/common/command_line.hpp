#pragma once

#include <cstddef>
#include <initializer_list>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace weft::perf {

/// The least and the most that a number may be; without: anything from 0 on.
struct Range {
  double least = 0;
  double most = std::numeric_limits<double>::infinity();
};

/// What a program takes on its command line, --help and --version among it. Programs that measure leave CLI11 to this
/// one: its templates take longer to compile than they do.
/// `names` are CLI11's ("-t,--ranks"); what a value holds before is its default, and stays where the option is missing.
class CommandLine {
 public:
  CommandLine(std::string name, std::string const& about);
  ~CommandLine();
  CommandLine(CommandLine const&) = delete;
  CommandLine& operator=(CommandLine const&) = delete;

  void add(std::string const& names, int& value, std::string const& help, Range range = {});
  void add(std::string const& names, std::size_t& value, std::string const& help, Range range = {});
  void add(std::string const& names, std::optional<std::size_t>& value, std::string const& help);
  void add(std::string const& names, double& value, std::string const& help, Range range = {});
  /// One or several, between commas or blanks.
  void add(std::string const& names, std::vector<std::size_t>& values, std::string const& help);
  void add(std::string const& names, std::vector<double>& values, std::string const& help);
  /// One of `choices`, if there are any.
  void add(std::string const& names, std::string& value, std::string const& help,
           std::initializer_list<char const*> choices = {});
  /// 0 or 1.
  void add_choice(std::string const& names, bool& value, std::string const& help);
  /// True where it is there.
  void add_flag(std::string const& names, bool& value, std::string const& help);
  /// K, M and G may follow (2^10, …).
  void add_bytes(std::string const& names, std::size_t& value, std::string const& help);
  void add_bytes(std::string const& names, std::vector<std::size_t>& values, std::string const& help);

  /// The exit code of a program that is to end: 0 once it has said what was asked for, 2 where it was called badly.
  [[nodiscard]] std::optional<int> parse(int argc, char const* const* argv);

 private:
  std::string name_;
  std::unique_ptr<CLI::App> app_;
};

}  // namespace weft::perf
