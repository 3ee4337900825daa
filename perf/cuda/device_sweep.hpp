#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/board.hpp"
#include "common/options.hpp"
#include "common/results.hpp"
#include "cuda/device_timer.hpp"
#include "cuda/nccl_calls.hpp"

namespace weft::perf {

/// What a rank measures on: a GPU through the libraries' tables, which in tests are a fake's.
struct Gpu {
  nccl::Libraries libraries;
  std::string bus_id;  ///< as nccl-tests prints it
  std::string name;
};

/// One rank's run on its GPU over the sizes, data types, reductions and roots asked for; rank 0 prints nccl-tests'
/// table. `--compare nccl` makes NCCL's own calls through the communicator that Weft uses, on the same buffers and
/// stream, in the same rounds.
class DeviceSweep {
 public:
  /// Collective; connects the communicator. What it is given must outlive it.
  DeviceSweep(Case const& what, Options const& options, Gpu const& gpu, Communicator& communicator);

  /// Collective: measures, prints, writes the files asked for. 0, or 1 when an element was wrong.
  [[nodiscard]] int run();

 private:
  struct Memory {
    Buffer send;
    Buffer recv;
  };
  struct Choice {
    DataType dtype;
    ReduceOp op;
    int root;
  };
  /// What is measured at one size: indices of sides.
  struct Entry {
    Counts counts;
    std::optional<std::size_t> in_place;
    std::optional<std::size_t> nccl;
  };

  void print(std::string const& text) const;
  void check_files();
  [[nodiscard]] std::vector<RankPlace> places();
  void run_type(DataType dtype);
  void run_choice(Choice const& choice);
  void print_close();

  [[nodiscard]] std::vector<int> roots() const;
  [[nodiscard]] Place place(int root) const noexcept { return {board_.rank(), board_.ranks(), root}; }
  [[nodiscard]] Memory allocate(DataType dtype);
  [[nodiscard]] Operands operands(Memory const& memory, Counts counts, Choice const& choice, bool in_place) const;
  [[nodiscard]] std::function<void()> weft_call(Operands const& on, Choice const& choice);
  [[nodiscard]] DeviceSide weft_side(Counts counts, Choice const& choice, bool in_place);
  [[nodiscard]] DeviceSide nccl_side(Counts counts, Choice const& choice);
  [[nodiscard]] DeviceRounds sides_of(std::size_t bytes, Choice const& choice, Entry& entry);
  [[nodiscard]] std::function<void()> blocking(std::function<void()> call);

  [[nodiscard]] Timing timing_of(DeviceSample sample, Counts counts, DataType dtype);
  /// Elements that one more call gets wrong: inputs from host memory, outputs compared there.
  [[nodiscard]] double wrong_in(Entry const& entry, Choice const& choice, bool in_place);
  void finish_line(DeviceRounds const& rounds, Entry const& entry, Choice const& choice);

  Case const& case_;
  Options const& options_;
  Gpu const& gpu_;
  Communicator& communicator_;
  Board board_;
  Stream stream_;
  std::optional<NcclCalls> nccl_;
  Memory memory_;
  Memory mirror_;  // in host memory, for checks
  std::optional<JsonDocument> document_;
  std::vector<nlohmann::json> json_lines_;
  std::vector<double> ratios_;
  double wrong_ = 0;
  double bus_sum_ = 0;
  int bus_lines_ = 0;
};

}  // namespace weft::perf
