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

/// The smallest and the largest value that a number may have; by default anything from 0 on.
struct Range {
  double least = 0;
  double most = std::numeric_limits<double>::infinity();
};

/// A program's command line, including --help and --version. Benchmarks use CLI11 only through this class, because its
/// templates take longer to compile than the benchmarks themselves.
/// `names` are in CLI11's form ("-t,--ranks"). A value's contents before parsing are its default, which stays if the
/// option is not given.
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
  /// One or several values, separated by commas or blanks.
  void add(std::string const& names, std::vector<std::size_t>& values, std::string const& help);
  void add(std::string const& names, std::vector<double>& values, std::string const& help);
  /// One of `choices`, if there are any.
  void add(std::string const& names, std::string& value, std::string const& help,
           std::initializer_list<char const*> choices = {});
  /// 0 or 1.
  void add_choice(std::string const& names, bool& value, std::string const& help);
  /// A flag: true if it is given.
  void add_flag(std::string const& names, bool& value, std::string const& help);
  /// A size, which may end in K, M or G (2^10, …).
  void add_bytes(std::string const& names, std::size_t& value, std::string const& help);
  void add_bytes(std::string const& names, std::vector<std::size_t>& values, std::string const& help);

  /// Parses. Returns an exit code if the program is to end: 0 after --help or --version, 2 after a bad argument.
  [[nodiscard]] std::optional<int> parse(int argc, char const* const* argv);

 private:
  std::string name_;
  std::unique_ptr<CLI::App> app_;
};

}  // namespace weft::perf
