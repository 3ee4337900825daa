#include "blas_core.hpp"

#include <cblas.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>

namespace train_gpt {
namespace {

/// What OpenBLAS has for this processor, by its instructions; null where that is nothing better.
char const* newest_core() {
#if defined(__x86_64__)
  auto const has_512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                       __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (has_512) return "SKYLAKEX";
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return "HASWELL";
#endif
  return nullptr;
}

}  // namespace

void use_newest_blas_core(char** arguments) {
  constexpr char const* kVariable = "OPENBLAS_CORETYPE";
  constexpr std::string_view kUnknownProcessor = "Prescott";
  if (std::getenv(kVariable) != nullptr || openblas_get_corename() != kUnknownProcessor) return;
  auto const* const core = newest_core();
  if (core == nullptr || setenv(kVariable, core, 0) != 0) return;
  execv("/proc/self/exe", arguments);  // returns only where it cannot: then the slow kernels have to do
}

}  // namespace train_gpt
