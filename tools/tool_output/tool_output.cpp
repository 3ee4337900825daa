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

/// errno of the first flush() of standard output that failed: the stream itself remembers only that one did.
int not_flushed = 0;

std::filesystem::path resolved(std::string const& path) {
  std::error_code none;
  auto const found = std::filesystem::weakly_canonical(std::filesystem::absolute(path), none);
  return none ? std::filesystem::absolute(path).lexically_normal() : found;
}

bool is_same_file(std::string const& one, std::string const& other) {
  std::error_code none;
  if (std::filesystem::is_character_file(one, none)) return false;
  bool const both = std::filesystem::exists(one, none) && std::filesystem::exists(other, none);
  return both ? std::filesystem::equivalent(one, other, none) : resolved(one) == resolved(other);
}

void check_output(NamedFile const& output, NamedFile const& other) {
  if (output.path.empty() || other.path.empty()) return;
  if (output.path == "-" && other.path == "-")
    throw std::runtime_error(fmt::format("{} and {} cannot both be standard output", other.option, output.option));
  if (output.path == "-" || other.path == "-" || !is_same_file(output.path, other.path)) return;
  throw std::runtime_error(
      fmt::format("{}: {} would overwrite what {} names", output.path, output.option, other.option));
}

}  // namespace

void check_distinct(std::vector<NamedFile> const& outputs, std::vector<NamedFile> const& inputs) {
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    for (auto const& input : inputs) {
      if (input.path != "-") check_output(outputs[i], input);
    }
    for (std::size_t j = 0; j < i; ++j) check_output(outputs[i], outputs[j]);
  }
}

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

void flush(std::FILE* out) {
  errno = 0;
  if (std::fflush(out) != 0 && out == stdout && not_flushed == 0) not_flushed = errno;
}

int exit_code(char const* program, int code) {
  errno = 0;
  std::cout.flush();
  bool const written = std::fflush(stdout) == 0 && std::ferror(stdout) == 0 && std::cout.good();
  int const why = not_flushed != 0 ? not_flushed : errno;
  if (written || why == EPIPE) return code;
  fmt::print(stderr, "{}: standard output: cannot be written: {}\n", program,
             why == 0 ? "no space, or closed" : std::strerror(why));
  return kNotWritten;
}

}  // namespace weft::tool_output
