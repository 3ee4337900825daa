#include "synchroniser.hpp"

#include <chrono>

#include <fmt/format.h>

#include <weft/error.hpp>
#include <weft/overlap.hpp>

#ifdef WEFT_WITH_MPI
#include <mpi.h>
#endif

namespace train_gpt {

#ifdef WEFT_WITH_MPI
namespace {

class MpiSynchroniser final : public Synchroniser {
 public:
  explicit MpiSynchroniser(std::span<weft::BufferView const> parameters) : gradients_(gradients_like(parameters)) {
    MPI_Comm_size(MPI_COMM_WORLD, &ranks_);
    order_.reserve(gradients_.size());
  }

  [[nodiscard]] weft::BufferView gradient(std::size_t index) const override { return gradients_.at(index).view(); }
  void mark_ready(std::size_t index) override { order_.push_back({index, std::chrono::steady_clock::now()}); }
  void finish() override {
    timings_.clear();
    for (auto const& [index, ready] : order_) {
      auto const started = std::chrono::steady_clock::now();
      average(gradients_[index].as<float>());
      timings_.push_back({gradients_[index].view().bytes(), ready, started, std::chrono::steady_clock::now()});
    }
    order_.clear();
  }
  [[nodiscard]] std::span<weft::BucketTiming const> timings() const override { return timings_; }

 private:
  struct Ready {
    std::size_t index;
    weft::TimePoint when;
  };

  void average(std::span<float> values) const {
    int const code =
        MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    if (code != MPI_SUCCESS) {
      throw weft::Error(weft::ErrorCode::system,
                        fmt::format("MPI_Allreduce of {} floats failed with code {}", values.size(), code));
    }
    float const share = 1.0F / static_cast<float>(ranks_);
    for (float& value : values) {
      value *= share;
    }
  }

  std::vector<weft::Buffer> gradients_;
  std::vector<Ready> order_;
  std::vector<weft::BucketTiming> timings_;
  int ranks_ = 1;
};

}  // namespace

std::string why_no_mpi() {
  int running = 0;
  MPI_Initialized(&running);
  return running != 0 ? "" : "the ranks were not started by mpirun";
}

std::unique_ptr<Synchroniser> mpi_synchroniser(std::span<weft::BufferView const> parameters) {
  return std::make_unique<MpiSynchroniser>(parameters);
}

#else

std::string why_no_mpi() {
  return "built without MPI";
}

std::unique_ptr<Synchroniser> mpi_synchroniser(std::span<weft::BufferView const>) {
  throw weft::Error(weft::ErrorCode::unsupported, "train_gpt was built without MPI");
}

#endif

}  // namespace train_gpt
