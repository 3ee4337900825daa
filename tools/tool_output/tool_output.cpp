#include "tool_output/tool_output.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <stdexcept>

namespace weft::tool_output {
namespace {

constexpr int kNotWritten = 2;

}  // namespace

void check_writable(std::string const& path) {
  if (path.empty() || path == "-") return;
  if (std::filesystem::is_directory(path)) throw std::runtime_error(fmt::format("{}: is a directory", path));
  auto const folder = std::filesystem::absolute(path).parent_path();
  if (access((std::filesystem::exists(path) ? path : folder.string()).c_str(), W_OK) != 0)
    throw std::runtime_error(fmt::format("{}: cannot be written: {}", path, std::strerror(errno)));
}

void write_file(std::string const& path, std::function<void(std::ostream&)> const& to) {
  if (path.empty()) return;
  if (path == "-") return to(std::cout);
  std::ofstream file(path);
  if (file) to(file);
  if (!file.flush()) throw std::runtime_error(fmt::format("{}: cannot be written: {}", path, std::strerror(errno)));
}

int exit_code(char const* program, int code) {
  errno = 0;
  std::cout.flush();
  bool const written = std::fflush(stdout) == 0 && std::ferror(stdout) == 0 && std::cout.good();
  if (written || errno == EPIPE) return code;
  fmt::print(stderr, "{}: standard output: cannot be written: {}\n", program, std::strerror(errno));
  return kNotWritten;
}

}  // namespace weft::tool_output
