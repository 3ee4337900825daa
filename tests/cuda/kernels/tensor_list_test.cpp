// Lists of tensors: scaling, checking, clamping, a·x + b·y, packing with a cast, and norms.

#include "optim/cuda/tensor_list.hpp"

#include <cmath>
#include <numeric>

#include "cuda/kernels/machines.hpp"

namespace weft::test {
namespace {

using kernels::cuda::kChunk;

template <typename Machine>
class TensorListTest : public OnMachine<Machine> {};
TYPED_TEST_SUITE(TensorListTest, Machines, MachineNames);

constexpr DataType kTypes[] = {DataType::f32, DataType::bf16, DataType::f16};
std::vector<std::size_t> const kCounts{0, 1, 3, 8, 1021, 4096, kChunk + 13};

/// Random tensors of one type, and what they hold.
template <typename Machine>
struct RandomTensors {
  std::vector<GuardedTensor<Machine>> tensors;
  std::vector<std::vector<float>> values;

  RandomTensors(Machine const& machine, DataType type, std::size_t offset, std::uint64_t seed, float scale = 1) {
    std::mt19937_64 random(seed);
    for (std::size_t const count : kCounts) {
      values.push_back(as_stored(random_floats(count, random, scale), type));
      tensors.emplace_back(machine, values.back(), type, offset);
    }
  }
  [[nodiscard]] std::vector<BufferView> views() const {
    std::vector<BufferView> all;
    for (auto const& tensor : tensors) all.push_back(tensor.view());
    return all;
  }
  /// `expected(tensor, element)` rounded to `type`, and nothing written beside it.
  template <typename F>
  void expect(DataType type, F const& expected, std::string const& where) const {
    for (std::size_t t = 0; t < tensors.size(); ++t) {
      std::vector<float> exact(values[t].size());
      for (std::size_t i = 0; i < exact.size(); ++i) exact[i] = expected(t, i);
      ASSERT_TRUE(near(tensors[t].get(), as_stored(exact, type), 0)) << where << ", tensor " << t;
      ASSERT_TRUE(tensors[t].guards_hold()) << where << ", tensor " << t;
    }
  }
};

template <typename Machine>
float read_float(Machine const& machine, void const* from) {
  return cuda::download<float>(machine, from);
}

TYPED_TEST(TensorListTest, ScalesInPlaceByAValueOrAPointer) {
  auto const machine = this->make();
  GuardedTensor<TypeParam> factor(machine, {-0.37F}, DataType::f32);
  for (auto const type : kTypes) {
    for (std::size_t const offset : {0, 1, 4}) {
      RandomTensors<TypeParam> all(machine, type, offset, 3);
      cuda::TensorList<TypeParam> const list(machine, all.views());
      bool const by_pointer = offset != 0;
      kernels::cuda::ScaleOp op{{-0.37F, nullptr}};
      if (by_pointer) op.factor = {1, static_cast<float const*>(factor.view().data)};
      list.map(op, nullptr, nullptr);
      all.expect(
          type, [&](std::size_t t, std::size_t i) { return all.values[t][i] * -0.37F; }, "scale");
      if (this->HasFatalFailure()) return;
    }
  }
}

TYPED_TEST(TensorListTest, FindsOneElementThatIsNotFinite) {
  auto const machine = this->make();
  for (auto const type : kTypes) {
    for (float const bad : {INFINITY, -INFINITY, NAN}) {
      for (std::size_t const at : {std::size_t{0}, std::size_t{4099}, std::size_t{kChunk + 12}}) {
        std::vector<float> values(kChunk + 13, 2);
        GuardedTensor<TypeParam> other(machine, {1, 2, 3}, type, 1);
        GuardedTensor<TypeParam> tensor(machine, values, type, at % 2);
        GuardedTensor<TypeParam> found(machine, {0}, DataType::f32);
        auto* const found_inf = static_cast<float*>(found.view().data);
        std::vector<BufferView> const views{other.view(), tensor.view()};
        cuda::TensorList<TypeParam> const list(machine, views);
        list.map(kernels::cuda::ScaleAndCheckOp{{{0.5F, nullptr}}}, found_inf, nullptr);
        EXPECT_EQ(found.get()[0], 0);
        values.assign(values.size(), 1);
        values[at] = bad;
        tensor.set(values);
        list.map(kernels::cuda::ScaleAndCheckOp{{{0.5F, nullptr}}}, found_inf, nullptr);
        EXPECT_EQ(found.get()[0], 1);
        for (float& value : values) value *= 0.5F;
        EXPECT_TRUE(near(tensor.get(), values, 0));
      }
    }
  }
}

TYPED_TEST(TensorListTest, ClampsAndKeepsNaN) {
  auto const machine = this->make();
  for (auto const type : kTypes) {
    GuardedTensor<TypeParam> tensor(machine, {-4, -0.5F, 0, 0.5F, 4, INFINITY, -INFINITY, NAN, 1}, type);
    BufferView const view = tensor.view();
    cuda::TensorList<TypeParam>(machine, {&view, 1}).map(kernels::cuda::ClampOp{1}, nullptr, nullptr);
    EXPECT_TRUE(near(tensor.get(), {-1, -0.5F, 0, 0.5F, 1, 1, -1, NAN, 1}, 0));
  }
}

TYPED_TEST(TensorListTest, AddsMultiplesAcrossTypes) {
  auto const machine = this->make();
  for (auto const x_type : kTypes) {
    for (auto const out_type : kTypes) {
      RandomTensors<TypeParam> x(machine, x_type, 1, 5);
      RandomTensors<TypeParam> out(machine, out_type, 0, 6);
      cuda::TensorList<TypeParam> const list(machine, x.views(), out.views(), out.views());
      list.map(kernels::cuda::AxpbyOp{{0.3F, nullptr}, {-2, nullptr}}, nullptr, nullptr);
      out.expect(
          out_type, [&](std::size_t t, std::size_t i) { return std::fma(0.3F, x.values[t][i], -2 * out.values[t][i]); },
          "axpby");
      if (this->HasFatalFailure()) return;
    }
  }
}

/// Tensors of one type into a bucket of another, and back.
TYPED_TEST(TensorListTest, PacksAndUnpacksBucketsWithACast) {
  auto const machine = this->make();
  std::size_t const total = std::accumulate(kCounts.begin(), kCounts.end(), std::size_t{0});
  for (auto const type : kTypes) {
    for (auto const bucket_type : kTypes) {
      RandomTensors<TypeParam> all(machine, type, 0, 8);
      GuardedTensor<TypeParam> bucket(machine, std::vector<float>(total), bucket_type, 1);
      std::vector<BufferView> slices;
      std::size_t next = 0;
      for (std::size_t const count : kCounts) {
        slices.push_back(bucket.view().slice(next, count));
        next += count;
      }
      cuda::TensorList<TypeParam>(machine, all.views(), {}, slices).map(kernels::cuda::ScaleOp{}, nullptr, nullptr);
      std::vector<float> expected;
      for (auto const& values : all.values) expected.insert(expected.end(), values.begin(), values.end());
      ASSERT_TRUE(near(bucket.get(), as_stored(expected, bucket_type), 0));
      ASSERT_TRUE(bucket.guards_hold());
      cuda::TensorList<TypeParam>(machine, slices, {}, all.views()).map(kernels::cuda::ScaleOp{}, nullptr, nullptr);
      all.expect(
          type, [&](std::size_t t, std::size_t i) { return as_stored({all.values[t][i]}, bucket_type)[0]; }, "unpack");
      if (this->HasFatalFailure()) return;
    }
  }
}

TYPED_TEST(TensorListTest, MeasuresEachTensorAndTheWhole) {
  auto const machine = this->make();
  for (auto const type : kTypes) {
    RandomTensors<TypeParam> const all(machine, type, type == DataType::bf16 ? 3 : 0, 11);
    cuda::MeasuredTensors<TypeParam> const list(machine, all.views());
    GuardedTensor<TypeParam> found(machine, {0}, DataType::f32);
    double squares = 0;
    float largest = 0;
    std::vector<double> each;
    for (auto const& values : all.values) {
      double own = 0;
      for (float const value : values) {
        double const g = value * 0.3F;
        own += g * g;
        largest = std::max(largest, std::fabs(value * 0.3F));
      }
      each.push_back(own);
      squares += own;
    }
    list.measure({.factor = {0.3F, nullptr}, .max_norm = 2, .found_inf = static_cast<float*>(found.view().data)},
                 nullptr);
    auto const whole = cuda::download<kernels::cuda::MeasuredList>(machine, list.whole());
    EXPECT_NEAR(whole.norm, std::sqrt(squares), 1e-12 * whole.norm);
    EXPECT_EQ(whole.norm_f32, static_cast<float>(whole.norm));
    EXPECT_NEAR(whole.clip, 2 / whole.norm, 1e-6);
    EXPECT_EQ(whole.not_finite, 0U);
    EXPECT_EQ(found.get()[0], 0);
    for (std::size_t t = 0; t < each.size(); ++t) {
      auto const one = cuda::download<kernels::cuda::Measured>(machine, list.of_tensor() + t);
      EXPECT_NEAR(one.squares, each[t], 1e-12 * each[t]) << t;
    }
    list.measure({.factor = {0.3F, nullptr}, .max_norm = 2}, nullptr);
    EXPECT_EQ(cuda::download<kernels::cuda::MeasuredList>(machine, list.whole()).norm, whole.norm) << "bits repeat";
    list.measure({.factor = {0.3F, nullptr}, .largest = true}, nullptr);
    auto const most = cuda::download<kernels::cuda::MeasuredList>(machine, list.whole());
    EXPECT_EQ(most.norm, largest);
    EXPECT_EQ(most.clip, 1);
  }
}

TYPED_TEST(TensorListTest, MeasuresWhatF32CannotSquareAndWhatIsNotFinite) {
  auto const machine = this->make();
  std::vector<float> values(kChunk + 13, 3e38F);
  GuardedTensor<TypeParam> tensor(machine, values, DataType::f32);
  GuardedTensor<TypeParam> found(machine, {0}, DataType::f32);
  BufferView const view = tensor.view();
  cuda::MeasuredTensors<TypeParam> const list(machine, {&view, 1});
  auto* const found_inf = static_cast<float*>(found.view().data);
  list.measure({.max_norm = 1, .found_inf = found_inf}, nullptr);
  auto whole = cuda::download<kernels::cuda::MeasuredList>(machine, list.whole());
  EXPECT_NEAR(whole.norm / (3e38 * std::sqrt(static_cast<double>(values.size()))), 1, 1e-6);
  EXPECT_EQ(found.get()[0], 0);
  for (std::size_t const at : {std::size_t{0}, std::size_t{77}, values.size() - 1}) {
    for (float const bad : {INFINITY, NAN}) {
      auto spoiled = values;
      spoiled[at] = bad;
      tensor.set(spoiled);
      found.set({0});
      list.measure({.max_norm = 1, .found_inf = found_inf}, nullptr);
      whole = cuda::download<kernels::cuda::MeasuredList>(machine, list.whole());
      EXPECT_EQ(whole.not_finite, 1U);
      EXPECT_EQ(whole.clip, 1) << "nothing is scaled by a number that is none";
      EXPECT_EQ(found.get()[0], 1);
    }
  }
}

}  // namespace
}  // namespace weft::test
