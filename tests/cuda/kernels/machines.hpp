#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "cuda/kernels/host_machine.hpp"
#include "kernels/cpu/optim/gradients.hpp"
#include "optim/cuda/gpu.hpp"

namespace weft::test {

/// Every test of kernels runs twice: their bodies in loops on the host, and on a GPU where there is one.
using Machines = testing::Types<HostMachine, cuda::Gpu>;

struct MachineNames {
  template <typename Machine>
  static std::string GetName(int /*index*/) {
    return std::is_same_v<Machine, HostMachine> ? "Host" : "Gpu";
  }
};

template <typename Machine>
class OnMachine : public testing::Test {
 protected:
  void SetUp() override {
    if (std::is_same_v<Machine, cuda::Gpu> && cuda::device_count() == 0) {
      GTEST_SKIP() << "no CUDA device: cudaGetDeviceCount() finds none here";
    }
  }
  static Machine make() {
    if constexpr (std::is_same_v<Machine, HostMachine>) {
      return {};
    } else {
      return Machine(0);
    }
  }
};

inline std::vector<float> random_floats(std::size_t count, std::mt19937_64& random, float scale = 1) {
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

/// What `values` are once stored as `type`.
inline std::vector<float> as_stored(std::vector<float> const& values, DataType type) {
  std::vector<std::byte> bytes(values.size() * size_of(type));
  std::vector<float> stored(values.size());
  kernels::convert(values.data(), DataType::f32, bytes.data(), type, values.size());
  kernels::convert(bytes.data(), type, stored.data(), DataType::f32, values.size());
  return stored;
}

/// A tensor in a machine's memory, `offset` elements from an aligned address, between bytes that nobody may write.
template <typename Machine>
class GuardedTensor {
 public:
  GuardedTensor(Machine const& machine, std::vector<float> const& values, DataType type, std::size_t offset = 0)
      : machine_(machine), count_(values.size()), type_(type), begin_(kGuard + offset * size_of(type)) {
    memory_ = machine_.allocate(begin_ + count_ * size_of(type) + kGuard);
    std::vector<std::byte> bytes(memory_.count(), kMark);
    machine_.write(memory_.data(), bytes.data(), bytes.size());
    set(values);
  }

  [[nodiscard]] BufferView view() const {
    return {static_cast<std::byte*>(memory_.data()) + begin_, count_, type_, machine_.device()};
  }
  void set(std::vector<float> const& values) {
    std::vector<std::byte> bytes(count_ * size_of(type_));
    kernels::convert(values.data(), DataType::f32, bytes.data(), type_, count_);
    machine_.write(view().data, bytes.data(), bytes.size());
  }
  [[nodiscard]] std::vector<float> get() const {
    std::vector<std::byte> bytes(count_ * size_of(type_));
    machine_.read(bytes.data(), view().data, bytes.size());
    std::vector<float> values(count_);
    kernels::convert(bytes.data(), type_, values.data(), DataType::f32, count_);
    return values;
  }
  [[nodiscard]] bool guards_hold() const {
    std::vector<std::byte> bytes(memory_.count());
    machine_.read(bytes.data(), memory_.data(), bytes.size());
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      bool const inside = i >= begin_ && i < begin_ + count_ * size_of(type_);
      if (!inside && bytes[i] != kMark) return false;
    }
    return true;
  }

 private:
  static constexpr std::size_t kGuard = 256;
  static constexpr std::byte kMark{0xAB};

  Machine machine_;
  std::size_t count_;
  DataType type_;
  std::size_t begin_;
  Buffer memory_;
};

/// Within `tolerance`, relative above 1; NaN and infinities alike.
inline testing::AssertionResult near(std::vector<float> const& got, std::vector<float> const& expected,
                                     double tolerance) {
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(got[i]) && std::isnan(expected[i])) continue;
    if (got[i] == expected[i]) continue;
    if (std::fabs(got[i] - expected[i]) <= tolerance * std::max(1.0F, std::fabs(expected[i]))) continue;
    return testing::AssertionFailure() << "element " << i << " of " << got.size() << " is " << got[i] << " and not "
                                       << expected[i];
  }
  return testing::AssertionSuccess();
}

}  // namespace weft::test
