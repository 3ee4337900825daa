#include "synchroniser.hpp"

namespace train_gpt {
namespace {

class WeftSynchroniser final : public Synchroniser {
 public:
  WeftSynchroniser(weft::Communicator communicator, std::vector<weft::BufferView> parameters,
                   weft::BucketerOptions const& options)
      : communicator_(std::move(communicator)),
        ddp_(communicator_, std::move(parameters), options),
        overlap_(options.overlap) {}

  [[nodiscard]] weft::BufferView gradient(std::size_t index) const override { return ddp_.gradient(index); }
  void mark_ready(std::size_t index) override { ddp_.mark_ready(index); }
  void finish_launching() override {
    if (overlap_) return ddp_.finish_launching();
    ddp_.finish();  // without overlap nothing is computed, updates neither, before all communication is over
  }
  void wait(std::size_t index) override {
    if (overlap_) ddp_.wait(index);
  }
  void finish() override {
    if (overlap_) ddp_.finish();
  }
  [[nodiscard]] std::span<weft::BucketTiming const> timings() const override { return ddp_.bucketer().timings(); }

 private:
  weft::Communicator communicator_;
  mutable weft::DataParallel ddp_;  // bucketer() gives access to more than timings and is not const
  bool overlap_;
};

class NoSynchroniser final : public Synchroniser {
 public:
  explicit NoSynchroniser(std::span<weft::BufferView const> parameters) : gradients_(gradients_like(parameters)) {}

  [[nodiscard]] weft::BufferView gradient(std::size_t index) const override { return gradients_.at(index).view(); }
  void mark_ready(std::size_t) override {}
  void finish() override {}
  [[nodiscard]] std::span<weft::BucketTiming const> timings() const override { return {}; }

 private:
  std::vector<weft::Buffer> gradients_;
};

}  // namespace

std::vector<weft::Buffer> gradients_like(std::span<weft::BufferView const> parameters) {
  std::vector<weft::Buffer> gradients;
  for (weft::BufferView const& parameter : parameters) {
    gradients.push_back(weft::Buffer::host(parameter.count, parameter.dtype));
  }
  return gradients;
}

std::unique_ptr<Synchroniser> weft_synchroniser(weft::Communicator communicator,
                                                std::vector<weft::BufferView> parameters,
                                                weft::BucketerOptions const& options) {
  return std::make_unique<WeftSynchroniser>(std::move(communicator), std::move(parameters), options);
}

std::unique_ptr<Synchroniser> no_synchroniser(std::span<weft::BufferView const> parameters) {
  return std::make_unique<NoSynchroniser>(parameters);
}

}  // namespace train_gpt
