#pragma once

#include <cstdio>
#include <functional>
#include <iosfwd>
#include <string>
#include <vector>

namespace weft::tool_output {

/// An option that names a file, such as "--json", and that file; an empty path means none.
struct NamedFile {
  std::string option;
  std::string path;
};

/// Makes sure that no output overwrites an input or another output: every output needs a file of its own, and standard
/// output, "-", takes only one. Devices such as /dev/null take several.
/// @throws std::runtime_error naming both options.
void check_distinct(std::vector<NamedFile> const& outputs, std::vector<NamedFile> const& inputs);

/// Called before a program works for long, so that an output that cannot be written is reported at once. Accepts empty
/// paths and "-". @throws std::runtime_error naming `path`.
void check_writable(std::string const& path);

/// Has `to` write to the file at `path`; "-" is standard output. Does nothing if `path` is empty.
/// @throws std::runtime_error naming `path` if not everything was written, as on a full disk.
void write_file(std::string const& path, std::function<void(std::ostream&)> const& to);

/// Flushes `out`, so that everything printed so far can be read. Remembers a failure for exit_code().
void flush(std::FILE* out);

/// The exit code of a program that has printed its result: `code`, or 2 if standard output did not take all of it,
/// which this reports on standard error. A reader that has closed the pipe is no error.
[[nodiscard]] int exit_code(char const* program, int code);

}  // namespace weft::tool_output
