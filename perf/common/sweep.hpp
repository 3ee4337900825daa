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

/// One rank's run over the requested data types, reductions and roots, and the table that rank 0 prints. Derived
/// classes decide where memory is and how calls are timed.
class Sweep {
 public:
  virtual ~Sweep() = default;
  Sweep(Sweep const&) = delete;
  Sweep& operator=(Sweep const&) = delete;

  /// Collective: measures, prints, and writes the requested files. Returns 0, or 1 if an element was wrong or
  /// NCCL_TESTS_MIN_BW was not reached.
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

  /// Collective. The arguments must outlive it. @throws Error{invalid_argument} for a root that does not exist, or a
  /// number of ranks that the operation does not support.
  Sweep(Case const& what, Options const& options, Communicator& communicator);

  [[nodiscard]] virtual std::vector<RankPlace> places() = 0;
  /// Allocates memory for every size of this type, which run_choice() then uses.
  virtual void allocate(DataType dtype) = 0;
  /// Collective: measures and prints a line for each size.
  virtual void run_choice(Choice const& choice) = 0;
  /// Lines below the table: means of ratios.
  [[nodiscard]] virtual std::string means() const = 0;
  /// Collective. The text that follows "Memory usage".
  [[nodiscard]] virtual std::string memory_usage() = 0;

  [[nodiscard]] Place place(int root) const noexcept { return {board_.rank(), board_.ranks(), root}; }
  /// Elements of each of a Memory's two buffers.
  [[nodiscard]] std::size_t elements_of(DataType dtype) const;
  [[nodiscard]] Operands operands(Memory const& memory, Counts counts, Choice const& choice, bool in_place) const;
  /// Makes a Timing and, unless `seconds` is 0, counts it in the average bus bandwidth.
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
  /// Whether the first rank can write to `path`, or `path` is empty. If not, the first rank throws
  /// Error{invalid_argument}, and the other ranks end silently.
  [[nodiscard]] bool can_write(char const* option, std::string const& path);
  [[nodiscard]] std::vector<int> roots() const;
  void run_type(DataType dtype);
  void close_totals();
  void print_close();

  std::optional<JsonDocument> document_;
  Totals totals_;
  std::vector<Timing> timings_;
};

}  // namespace weft::perf
