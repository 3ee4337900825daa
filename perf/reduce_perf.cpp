#include "common/program.hpp"

int main(int argc, char** argv) {
  return weft::perf::run_program(weft::perf::Op::reduce, argc, argv);
}
