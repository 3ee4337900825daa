#pragma once

namespace train_gpt {

/// OpenBLAS knows processors by their model numbers, and gives one that it does not know the kernels of 2004: a step
/// then takes three times as long. Where that is so, and the processor has newer instructions, this starts the program
/// anew with OPENBLAS_CORETYPE set, which is read when the library is loaded. Does nothing where the user has set it.
/// To be called first, with main()'s arguments.
void use_newest_blas_core(char** arguments);

}  // namespace train_gpt
