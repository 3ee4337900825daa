#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "cuda/fake/on_fake_nccl.hpp"
#include "harness/ranks.hpp"
#include "weft/error.hpp"
#include "weft/sharded_optimizer.hpp"

namespace weft::test {

/// Ranks that share a GPU in host memory.
using FakeSharded = OnFakeNccl;

/// A copy of values on the host, in memory that `memory` gets.
inline BufferView copied_to(FakeGpu const& gpu, std::vector<Buffer>& memory, BufferView const& from) {
  memory.push_back(gpu.allocate(from.count, from.dtype));
  if (from.count == 0) return {nullptr, 0, from.dtype, kGpu};
  std::memcpy(memory.back().data(), from.data, from.bytes());
  return memory.back().view();
}

inline void launch(FakeGpu& gpu, Stream const& stream, std::function<void()> kernel) {
  static_cast<void>(gpu.launch_kernel(cuda::handle_of(stream), std::move(kernel)));
}

/// `make` throws an Error that says `word`.
template <typename Make>
void expect_refused(Make const& make, std::string const& word) {
  try {
    make();
    ADD_FAILURE() << word;
  } catch (Error const& error) {
    EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
  }
}

/// Of parameters that were made with `values`, on the host: masters are these, and what is set is read.
inline void expect_states_to_be_set(ShardedOptimizer& optimizer, std::vector<BufferView> const& values) {
  for (std::size_t i = 0; i < optimizer.parameter_count(); ++i) {
    std::vector<float> master = optimizer.master(i);
    ASSERT_EQ(master.size(), values[i].count);
    for (std::size_t e = 0; e < master.size(); ++e) ASSERT_EQ(master[e], static_cast<float const*>(values[i].data)[e]);
    for (float& value : master) value += 1;
    optimizer.set_parameter(i, master);
    optimizer.set_state(i, 1, master);
    EXPECT_EQ(optimizer.master(i), master);
    EXPECT_EQ(optimizer.state(i, 1), master);
  }
}

}  // namespace weft::test
