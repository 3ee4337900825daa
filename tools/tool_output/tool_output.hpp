#pragma once

#include <cstdio>
#include <functional>
#include <iosfwd>
#include <string>
#include <vector>

namespace weft::tool_output {

/// An option that names a file, "--json", and the file; an empty path is none.
struct NamedFile {
  std::string option;
  std::string path;
};

/// Nothing that is written may destroy what was read, or what was written before it: every output has a file of its
/// own, and standard output, "-", takes one. Devices, as /dev/null, take several.
/// @throws std::runtime_error that names both options
void check_distinct(std::vector<NamedFile> const& outputs, std::vector<NamedFile> const& inputs);

/// Before a program works for long: what cannot be written is said at once. Empty paths and "-" pass.
/// @throws std::runtime_error that names `path`
void check_writable(std::string const& path);

/// Writes what `to` gives to the file at `path`; "-" is standard output, and nothing happens where it is empty.
/// @throws std::runtime_error that names `path` where not all of it was written, as on a full disk
void write_file(std::string const& path, std::function<void(std::ostream&)> const& to);

/// What was printed so far can be read. Why that failed is kept for exit_code().
void flush(std::FILE* out);

/// The exit code of a program that has printed its result: `code`, or 2 where standard output did not take all of it
/// and `program` has said so on standard error. A reader that wants no more (a closed pipe) is no error.
[[nodiscard]] int exit_code(char const* program, int code);

}  // namespace weft::tool_output
