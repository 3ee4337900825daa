#pragma once

#include <memory>
#include <vector>

#include "collectives/cases/contributions.hpp"
#include "collectives/cases/layout.hpp"

namespace weft::test {

/// Symmetric memory that the cases of a communicator share.
class Arena {
 public:
  /// Collective. `device`: where the cases' buffers are said to be, of a GPU whose memory the host can use.
  Arena(Communicator& communicator, std::size_t areas, std::size_t area_bytes, Device device = {});

  [[nodiscard]] Device device() const noexcept { return memory_.view().device; }

  [[nodiscard]] std::size_t area_bytes() const noexcept { return area_bytes_; }
  [[nodiscard]] std::byte* area(std::size_t index) const noexcept {
    return static_cast<std::byte*>(memory_.data()) + index * area_bytes_;
  }

 private:
  Buffer memory_;
  std::size_t area_bytes_;
};

/// One rank's part in a case: buffers made and filled, the call, and the look at what it left. Several of them may be
/// under way at once, in different areas.
class Attempt {
 public:
  /// Uses areas `first_area` and the next of `arena`. Collective where the case wants symmetric memory of its own.
  /// `in_any_order`: contributions may combine in another order than that of their ranks, see find_deviation().
  Attempt(Communicator& communicator, Case const& one, Arena& arena, std::size_t first_area, bool in_any_order = false);

  /// Makes the call, inline without a stream.
  void issue(CollectiveOptions const& options);

  /// Waits and compares everything in reach with what has to be there, guards around the buffers included.
  /// @throws std::runtime_error that says what differs.
  void finish();

  /// After finish(): what the call left in recv's pieces, one after the other.
  [[nodiscard]] std::vector<std::byte> result() const;
  [[nodiscard]] Layout const& layout() const noexcept { return layout_; }
  [[nodiscard]] Contributions const& contributions() const noexcept { return contributions_; }

 private:
  /// A view with guards on both sides.
  struct Region {
    std::shared_ptr<void> owner;
    std::byte* begin = nullptr;
    std::vector<std::byte> before;  ///< what it held before the call
    BufferView view;
  };

  [[nodiscard]] Region place(Arena& arena, std::size_t area, std::size_t count, std::size_t most);
  void fill(std::size_t salt, Region& region) const;
  void check_recv(Region& region, BufferView const& recv) const;
  void check_rest(char const* name, Region const& region) const;
  [[noreturn]] void fail(std::string const& what) const;

  Communicator& communicator_;
  Case const one_;
  bool const in_any_order_;
  Layout const layout_;
  Contributions const contributions_;
  Region send_region_;
  Region recv_region_;  // empty in place
  BufferView send_;
  BufferView recv_;
  std::vector<Work> works_;
};

}  // namespace weft::test
