#include "common/program.hpp"

int main(int argc, char** argv) {
  return weft::perf::run_program(weft::perf::Op::all_to_all, argc, argv);
}
