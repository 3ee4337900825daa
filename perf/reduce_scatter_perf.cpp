#include "common/program.hpp"

int main(int argc, char** argv) {
  return weft::perf::run_program(*weft::perf::reduce_scatter_case(), argc, argv);
}
