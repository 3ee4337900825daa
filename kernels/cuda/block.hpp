#pragma once

/// Kernel bodies are ordinary functions over a `Block`: loops over a block's threads, after each of which all threads
/// wait for one another. nvcc compiles them for the GPU (DeviceBlock in launch.cuh). The C++ compiler compiles the same
/// bodies for tests, which run them thread after thread on machines without a GPU.
///
/// A body is a struct of pointers and numbers, passed to the GPU by value, with
///   static constexpr unsigned kThreads;   // of a block, a power of two
///   struct Shared;                        // what a block's threads share
///   template <typename Block> WEFT_KERNEL void operator()(Block& block, Shared& shared) const;
/// and a Block has
///   unsigned index();                            // of the block in its grid
///   void each_thread(auto f);                    // f(thread) on every thread, then all wait for one another
///   template <typename T> struct PerThread;      // a variable of every thread, [thread]
#ifdef __CUDACC__
#define WEFT_KERNEL __device__
#define WEFT_UNROLL _Pragma("unroll")  // so that arrays indexed by the loop stay in registers
#else
#define WEFT_KERNEL
#define WEFT_UNROLL
#endif

namespace weft::kernels::cuda {

/// For bodies whose threads share nothing.
struct Nothing {};

/// Combines the `values` of a block, one per thread, always in the same order; the result is values[0].
template <unsigned kThreads, typename Block, typename T, typename Combine>
WEFT_KERNEL void combine_all(Block& block, T* values, Combine const& combine) {
  constexpr unsigned kAtOnce = 8;  // values per thread and step: fewer steps mean fewer waits of all threads
  for (unsigned left = kThreads; left > 1;) {
    unsigned const to = left > kAtOnce ? left / kAtOnce : 1;
    block.each_thread([&](unsigned t) {
      if (t >= to) return;
      T all = values[t];
      for (unsigned next = t + to; next < left; next += to) all = combine(all, values[next]);
      values[t] = all;
    });
    left = to;
  }
}

}  // namespace weft::kernels::cuda
