#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/sweep.hpp"
#include "cuda/device_timer.hpp"
#include "cuda/nccl_calls.hpp"

namespace weft::perf {

/// What a rank measures on: a GPU, through the libraries' function tables, which are a fake's in tests.
struct Gpu {
  nccl::Libraries libraries;
  std::string bus_id;  ///< as nccl-tests prints it
  std::string name;
};

/// A Sweep on GPU memory. With `--compare nccl` it also makes NCCL's own calls through the communicator that Weft uses,
/// on the same buffers and stream, in the same rounds.
class DeviceSweep final : public Sweep {
 public:
  /// Collective; connects the communicator. The arguments must outlive it.
  DeviceSweep(Case const& what, Options const& options, Gpu const& gpu, Communicator& communicator);

 private:
  /// What is measured at one size: indices of sides.
  struct Entry {
    Counts counts;
    std::optional<std::size_t> in_place;
    std::optional<std::size_t> nccl;
  };

  [[nodiscard]] std::vector<RankPlace> places() override;
  void allocate(DataType dtype) override;
  void run_choice(Choice const& choice) override;
  [[nodiscard]] std::string means() const override;
  [[nodiscard]] std::string memory_usage() override;

  [[nodiscard]] std::function<void()> weft_call(Operands const& on, Choice const& choice);
  [[nodiscard]] DeviceSide weft_side(Counts counts, Choice const& choice, bool in_place);
  [[nodiscard]] DeviceSide nccl_side(Counts counts, Choice const& choice);
  [[nodiscard]] DeviceRounds sides_of(std::size_t bytes, Choice const& choice, Entry& entry);
  [[nodiscard]] std::function<void()> blocking(std::function<void()> call);

  [[nodiscard]] Timing sample_timing(DeviceSample sample, Counts counts, DataType dtype);
  /// Makes one more call and returns how many elements are wrong. Inputs come from host memory, and outputs are
  /// compared there.
  [[nodiscard]] double wrong_in(Entry const& entry, Choice const& choice, bool in_place);
  void finish_line(DeviceRounds const& rounds, Entry const& entry, Choice const& choice);

  Gpu const& gpu_;
  Stream stream_;
  std::optional<NcclCalls> nccl_;
  Memory memory_;
  Memory mirror_;  // in host memory, for checks
  std::vector<double> ratios_;
};

}  // namespace weft::perf
