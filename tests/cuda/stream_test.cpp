#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "cuda/needs_gpu.hpp"
#include "weft/error.hpp"
#include "weft/event.hpp"

namespace weft::test {
namespace {

using namespace std::chrono_literals;
using CudaStreamTest = NeedsGpu;

TEST_F(CudaStreamTest, TasksRunInOrderAndSynchronizeWaitsForThem) {
  for (bool const high_priority : {false, true}) {
    Stream stream = cuda::make_stream({.high_priority = high_priority});
    EXPECT_EQ(stream.device(), (Device{DeviceType::cuda, 0}));
    std::vector<int> order;
    for (int i = 0; i < 100; ++i) stream.enqueue([&order, i] { order.push_back(i); });
    stream.synchronize();
    ASSERT_EQ(order.size(), 100U);
    for (int i = 0; i < 100; ++i) EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
  }
}

TEST_F(CudaStreamTest, AWrappedStreamIsTheSameQueue) {
  Stream owner = cuda::make_stream();
  Stream wrapped = cuda::wrap_stream(cuda::handle_of(owner), 0);
  EXPECT_EQ(cuda::handle_of(wrapped), cuda::handle_of(owner));
  std::atomic<bool> slow_task_ran = false;
  owner.enqueue([&] {
    std::this_thread::sleep_for(50ms);
    slow_task_ran = true;
  });
  wrapped.synchronize();
  EXPECT_TRUE(slow_task_ran);
}

TEST_F(CudaStreamTest, EventsOrderStreamsOfBothKinds) {
  Stream gpu = cuda::make_stream();
  Stream other_gpu = cuda::make_stream({.high_priority = true});
  Stream cpu = Stream::cpu();
  std::vector<Stream> const streams{gpu, other_gpu, cpu};
  for (Stream from : streams) {
    for (Stream to : streams) {
      if (from == to) continue;
      std::atomic<bool> first_done = false;
      std::atomic<bool> second_saw_it = false;
      from.enqueue([&] {
        std::this_thread::sleep_for(30ms);
        first_done = true;
      });
      Event event;
      event.record(from);
      EXPECT_FALSE(event.query());
      event.wait_on(to);
      to.enqueue([&] { second_saw_it = first_done.load(); });
      to.synchronize();
      EXPECT_TRUE(second_saw_it) << to_string(from.device()) << " before " << to_string(to.device());
      event.synchronize();
      EXPECT_TRUE(event.query());
    }
  }
}

TEST_F(CudaStreamTest, EventsMeasureTime) {
  Stream stream = cuda::make_stream();
  Event before;
  Event after;
  before.record(stream);
  stream.enqueue([] { std::this_thread::sleep_for(20ms); });
  after.record(stream);
  after.synchronize();
  EXPECT_GE(before.elapsed_until(after), 19ms);
  EXPECT_LT(before.elapsed_until(after), 5s);
}

TEST_F(CudaStreamTest, ATaskMustNotWaitForItsOwnStream) {
  Stream stream = cuda::make_stream();
  bool refused = false;
  stream.enqueue([&] {
    try {
      stream.synchronize();
    } catch (Error const& error) {
      refused = error.code() == ErrorCode::invalid_argument;
    }
  });
  stream.synchronize();
  EXPECT_TRUE(refused);
}

}  // namespace
}  // namespace weft::test
