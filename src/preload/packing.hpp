#pragma once

#include <mpi.h>

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "preload/types.hpp"
#include "weft/parts.hpp"

namespace weft::preload {

/// The parts of a buffer as MPI's …v functions name them: counts in elements, displacements in extents.
struct MpiParts {
  int const* counts;
  int const* displacements;
  int ranks;

  [[nodiscard]] bool valid() const noexcept;
};

class Incoming;

/// What a rank sends, as plain bytes: the caller's buffer where its type is dense, else a packed copy. MPI's types may
/// differ between ranks as long as they give equally many bytes of the same basic types, so Weft is told bytes only.
class Outgoing {
 public:
  Outgoing() = default;
  /// `count` elements at `buffer`. @throws Error{system} when MPI cannot pack them.
  Outgoing(void const* buffer, std::size_t count, Layout const& layout, MPI_Comm scratch);
  /// The parts of a buffer; in the packed copy they lie one after the other. `copy`: pack even where that is not
  /// needed.
  Outgoing(void const* buffer, MpiParts const& parts, Layout const& layout, MPI_Comm scratch, bool copy = false);

  [[nodiscard]] std::byte const* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] Parts parts() const noexcept { return {counts_, offsets_}; }
  /// Switches to a packed copy where parts that leave gaps interlace with the parts that are received: Weft takes
  /// either buffer as a whole and would call that an overlap, which MPI libraries let pass.
  void keep_apart_from(Incoming const& to);
  /// Where `rank`'s part lies in data().
  [[nodiscard]] std::size_t offset_of(std::size_t rank) const noexcept;

 private:
  std::unique_ptr<std::byte[]> packed_;
  std::byte const* data_ = nullptr;
  std::size_t bytes_ = 0;
  std::vector<std::size_t> counts_;
  std::vector<std::size_t> offsets_;
};

/// Where a rank receives plain bytes: the caller's buffer where its type is dense, else memory that deliver() unpacks.
class Incoming {
 public:
  Incoming() = default;
  Incoming(void* buffer, std::size_t count, Layout const& layout, MPI_Comm scratch);
  Incoming(void* buffer, MpiParts const& parts, Layout const& layout, MPI_Comm scratch);

  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] Parts parts() const noexcept { return {counts_, offsets_}; }

  /// Unpacks what was received into the caller's buffer. @throws Error{system} when MPI cannot unpack.
  void deliver() const;

 private:
  /// A stretch of the caller's buffer.
  struct Stretch {
    std::byte* at;
    std::size_t count;
  };
  Layout layout_;
  MPI_Comm scratch_ = MPI_COMM_NULL;
  std::unique_ptr<std::byte[]> packed_;
  std::vector<Stretch> stretches_;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  std::vector<std::size_t> counts_;
  std::vector<std::size_t> offsets_;
};

/// Whether `buffer` may be the address of `bytes` of data: null is one only for types that carry addresses of their
/// own.
[[nodiscard]] inline bool usable(void const* buffer, std::size_t bytes, Layout const& layout) noexcept {
  return buffer != nullptr || bytes == 0 || !layout.dense;
}

}  // namespace weft::preload
