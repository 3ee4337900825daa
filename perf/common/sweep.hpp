#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "common/board.hpp"
#include "common/options.hpp"
#include "common/results.hpp"
#include "common/rounds.hpp"

namespace weft::perf {

/// One rank's run over the data types, reductions and roots asked for, and the table that rank 0 prints of it. Where
/// memory is and how calls are timed is for those that derive from it.
class Sweep {
 public:
  virtual ~Sweep() = default;
  Sweep(Sweep const&) = delete;
  Sweep& operator=(Sweep const&) = delete;

  /// Collective: measures, prints, writes the files asked for. 0, or 1 when an element was wrong or
  /// NCCL_TESTS_MIN_BW was missed.
  [[nodiscard]] int run();

 protected:
  /// A library's send and receive memory, large enough for every size.
  struct Memory {
    Buffer send;
    Buffer recv;
    [[nodiscard]] double mib() const noexcept {
      return static_cast<double>(send.view().bytes() + recv.view().bytes()) / (1 << 20);
    }
  };
  /// One table line's choices besides the size.
  struct Choice {
    DataType dtype;
    ReduceOp op;
    int root;
  };

  /// Collective. What it is given must outlive it. @throws Error{invalid_argument} for roots and numbers of ranks that
  /// do not go with one another.
  Sweep(Case const& what, Options const& options, Communicator& communicator);

  [[nodiscard]] virtual std::vector<RankPlace> places() = 0;
  /// Memory for every size of this type, in which calls of run_choice() are made.
  virtual void allocate(DataType dtype) = 0;
  /// Collective: a line for each size.
  virtual void run_choice(Choice const& choice) = 0;
  /// Lines below the table: means of ratios.
  [[nodiscard]] virtual std::string means() const = 0;
  /// Collective. What follows "Memory usage".
  [[nodiscard]] virtual std::string memory_usage() = 0;

  [[nodiscard]] Place place(int root) const noexcept { return {board_.rank(), board_.ranks(), root}; }
  /// Elements of each of a Memory's two buffers.
  [[nodiscard]] std::size_t elements_of(DataType dtype) const;
  [[nodiscard]] Operands operands(Memory const& memory, Counts counts, Choice const& choice, bool in_place) const;
  /// Counts towards the average of bus bandwidth.
  [[nodiscard]] Timing timing_of(double seconds, Counts counts, DataType dtype);
  void note_wrong(Timing& timing, double wrong);
  [[nodiscard]] Line line_of(std::size_t bytes, Counts counts, Choice const& choice) const;
  void print_line(Line& line, Detail const& detail);

  Case const& case_;
  Options const& options_;
  Communicator& communicator_;
  Board board_;

 private:
  void print(std::string const& text) const;
  /// Whether the first rank can write to `path`, or it is empty; where it cannot, that rank throws
  /// Error{invalid_argument}, and the others have nothing to say.
  [[nodiscard]] bool can_write(char const* option, std::string const& path);
  [[nodiscard]] std::vector<int> roots() const;
  void run_type(DataType dtype);
  void close_totals();
  void print_close();

  std::optional<JsonDocument> document_;
  Totals totals_;
  double bus_sum_ = 0;
  int bus_lines_ = 0;
};

}  // namespace weft::perf
