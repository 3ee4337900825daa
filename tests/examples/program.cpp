#include "program.hpp"

#include <sys/wait.h>

#include <fstream>
#include <iterator>

namespace weft::test {
std::string read_file(std::string const& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string small_buckets(std::string const& arguments) {
  bool const units = arguments.find("zero3") != std::string::npos || arguments.find("hsdp") != std::string::npos;
  return units ? "" : " --bucket-mb 0.03 --first-bucket-mb 0.01 --last-bucket-mb 0.01";
}

ProgramResult run_train_gpt(std::string const& arguments, int limit_seconds) {
  TemporaryFolder const folder;
  std::string const command = "timeout -k 2 " + std::to_string(limit_seconds) + " " TRAIN_GPT_PROGRAM " " + arguments +
                              " >" + folder.file("out") + " 2>" + folder.file("error");
  int const status = std::system(command.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_file(folder.file("out")), read_file(folder.file("error"))};
}

}  // namespace weft::test
