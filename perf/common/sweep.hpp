#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "common/board.hpp"
#include "common/limit.hpp"
#include "common/mpi_peer.hpp"
#include "common/options.hpp"
#include "common/overlap.hpp"
#include "common/results.hpp"
#include "common/rounds.hpp"

namespace weft::perf {

/// One rank's run over the sizes, data types, reductions and roots asked for. Rank 0 prints.
class Sweep {
 public:
  /// Collective. `peer`: null when nothing is compared; like the others it must outlive the Sweep.
  Sweep(Case const& what, Options const& options, MpiPeer const* peer, Communicator& communicator);

  /// Collective: measures, prints, writes the files asked for. 0, or 1 when an element was wrong.
  [[nodiscard]] int run();

 private:
  /// A library's send and receive memory, large enough for every size.
  struct Memory {
    Buffer send;
    Buffer recv;
  };
  /// One table line's choices besides the size.
  struct Choice {
    DataType dtype;
    ReduceOp op;
    int root;
  };
  /// What is measured at one size: indices of sides.
  struct Entry {
    Counts counts;
    std::size_t out_of_place = 0;
    std::optional<std::size_t> in_place;
    std::optional<std::size_t> peer;
  };

  void print(std::string const& text) const;
  /// Whether the first rank can write to `path`, or it is empty; where it cannot, that rank throws
  /// Error{invalid_argument}, and the others have nothing to say.
  bool can_write(char const* option, std::string const& path);
  void run_type(DataType dtype);
  void run_choice(Choice const& choice);
  void print_close();

  [[nodiscard]] std::vector<int> roots() const;
  [[nodiscard]] Place place(int root) const noexcept { return {board_.rank(), board_.ranks(), root}; }
  void allocate(DataType dtype);
  [[nodiscard]] Memory allocate_memory(std::size_t elements, DataType dtype, bool symmetric);
  [[nodiscard]] Operands operands(Memory const& memory, Counts counts, Choice const& choice, bool in_place) const;
  [[nodiscard]] std::function<void()> weft_call(Operands const& on, Choice const& choice);
  [[nodiscard]] Side weft_side(Counts counts, Choice const& choice, bool in_place);
  [[nodiscard]] Side peer_side(Counts counts, Choice const& choice);
  [[nodiscard]] SizeRounds sides_of(std::size_t bytes, Choice const& choice, Entry& entry);

  [[nodiscard]] Timing timing_of(SizeRounds const& rounds, std::size_t side, Entry const& entry, Canary best,
                                 Choice const& choice, bool checked);
  [[nodiscard]] Detail detail_of(SizeRounds const& rounds, Entry const& entry, Canary best, Choice const& choice);
  [[nodiscard]] double overlap_of(Side const& side, Choice const& choice, std::size_t bytes);
  void finish_line(SizeRounds const& rounds, Entry const& entry, Canary best, Choice const& choice);

  Case const& case_;
  Options const& options_;
  MpiPeer const* peer_;
  Communicator& communicator_;
  Board board_;
  Memory own_;
  Memory peers_;
  std::optional<PhysicalLimit> limit_;
  std::optional<OverlapMeter> overlap_;
  std::optional<JsonDocument> document_;
  std::vector<nlohmann::json> json_lines_;
  std::vector<double> limit_ratios_;
  std::vector<double> call_ratios_;
  std::vector<double> cost_ratios_;
  double wrong_ = 0;
  double bus_sum_ = 0;
  int bus_lines_ = 0;
};

}  // namespace weft::perf
