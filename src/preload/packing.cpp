#include "preload/packing.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstring>
#include <mutex>
#include <numeric>

#include "weft/error.hpp"

namespace weft::preload {
namespace {

/// MPI counts a packed buffer's bytes in an int, so elements are packed in groups that fit.
std::size_t group_of(Layout const& layout) {
  return layout.bytes == 0 ? INT_MAX : std::max<std::size_t>(1, INT_MAX / layout.bytes);
}

void check(int status, int position, std::size_t expected, char const* call) {
  if (status == MPI_SUCCESS && static_cast<std::size_t>(position) == expected) return;
  throw Error(ErrorCode::system, fmt::format("{} moved {} of {} bytes (code {})", call, position, expected, status));
}

/// A type that stands for more plain bytes than an int can count, as one element; it matches whatever types they are
/// of.
class LargeType {
 public:
  explicit LargeType(std::size_t bytes) {
    constexpr std::size_t kChunk = std::size_t{1} << 30U;
    MPI_Datatype chunk = MPI_DATATYPE_NULL;
    PMPI_Type_contiguous(static_cast<int>(kChunk), MPI_PACKED, &chunk);
    auto const chunks = bytes / kChunk;
    std::array<int, 2> counts{static_cast<int>(chunks), static_cast<int>(bytes % kChunk)};
    std::array<MPI_Aint, 2> places{0, static_cast<MPI_Aint>(chunks * kChunk)};
    std::array<MPI_Datatype, 2> types{chunk, MPI_PACKED};
    PMPI_Type_create_struct(2, counts.data(), places.data(), types.data(), &type_);
    PMPI_Type_commit(&type_);
    PMPI_Type_free(&chunk);
  }
  ~LargeType() { PMPI_Type_free(&type_); }
  LargeType(LargeType const&) = delete;
  LargeType& operator=(LargeType const&) = delete;
  operator MPI_Datatype() const noexcept { return type_; }  // NOLINT(google-explicit-constructor): a type is one

 private:
  MPI_Datatype type_ = MPI_DATATYPE_NULL;
};

/// Packs or unpacks one element by a message to this rank itself.
void move_large(void const* from, MPI_Datatype from_type, void* to, MPI_Datatype to_type, std::size_t bytes,
                MPI_Comm scratch) {
  constexpr int kTag = 1;
  static constinit std::mutex one_at_a_time;  // the messages of several threads could not be told apart
  std::lock_guard const lock(one_at_a_time);
  auto const status = PMPI_Sendrecv(from, 1, from_type, 0, kTag, to, 1, to_type, 0, kTag, scratch, MPI_STATUS_IGNORE);
  if (status == MPI_SUCCESS) return;
  throw Error(ErrorCode::system, fmt::format("one element of {} bytes: MPI_Sendrecv failed (code {})", bytes, status));
}

std::byte* pack(std::byte* to, void const* from, std::size_t count, Layout const& layout, MPI_Comm scratch) {
  auto const* source = static_cast<std::byte const*>(from);
  if (layout.dense) {
    if (count > 0) std::memcpy(to, source, count * layout.bytes);
    return to + count * layout.bytes;
  }
  for (auto const group = group_of(layout); count > 0;) {
    auto const now = std::min(count, group);
    auto const bytes = now * layout.bytes;
    if (bytes > INT_MAX) {
      move_large(source, layout.type, to, LargeType(bytes), bytes, scratch);
    } else {
      int position = 0;
      auto const status =
          PMPI_Pack(source, static_cast<int>(now), layout.type, to, static_cast<int>(bytes), &position, scratch);
      check(status, position, bytes, "MPI_Pack");
    }
    source += static_cast<std::ptrdiff_t>(now) * layout.extent;
    to += bytes;
    count -= now;
  }
  return to;
}

std::byte const* unpack(void* to, std::byte const* from, std::size_t count, Layout const& layout, MPI_Comm scratch) {
  auto* target = static_cast<std::byte*>(to);
  if (layout.dense) {
    if (count > 0) std::memcpy(target, from, count * layout.bytes);
    return from + count * layout.bytes;
  }
  for (auto const group = group_of(layout); count > 0;) {
    auto const now = std::min(count, group);
    auto const bytes = now * layout.bytes;
    if (bytes > INT_MAX) {
      move_large(from, LargeType(bytes), target, layout.type, bytes, scratch);
    } else {
      int position = 0;
      auto const status =
          PMPI_Unpack(from, static_cast<int>(bytes), &position, target, static_cast<int>(now), layout.type, scratch);
      check(status, position, bytes, "MPI_Unpack");
    }
    target += static_cast<std::ptrdiff_t>(now) * layout.extent;
    from += bytes;
    count -= now;
  }
  return from;
}

/// Whether Weft can use the parts where they lie, and where that is.
bool in_place(MpiParts const& parts, Layout const& layout, std::vector<std::size_t>& offsets, std::size_t& end) {
  if (!layout.dense) return false;
  for (int rank = 0; rank < parts.ranks; ++rank) {
    // Where nothing is moved, the displacement means nothing either.
    auto const first = parts.counts[rank] == 0 ? 0 : parts.displacements[rank];
    if (first < 0) return false;
    offsets.push_back(static_cast<std::size_t>(first) * layout.bytes);
    end = std::max(end, offsets.back() + static_cast<std::size_t>(parts.counts[rank]) * layout.bytes);
  }
  return true;
}

std::vector<std::size_t> counts_in_bytes(MpiParts const& parts, Layout const& layout) {
  std::vector<std::size_t> counts;
  for (int rank = 0; rank < parts.ranks; ++rank)
    counts.push_back(static_cast<std::size_t>(parts.counts[rank]) * layout.bytes);
  return counts;
}

std::size_t sum(std::vector<std::size_t> const& values) {
  return std::accumulate(values.begin(), values.end(), std::size_t{0});
}

std::unique_ptr<std::byte[]> room_for(std::size_t bytes) {
  return std::make_unique_for_overwrite<std::byte[]>(std::max<std::size_t>(bytes, 1));
}

}  // namespace

bool MpiParts::valid() const noexcept {
  return counts != nullptr && displacements != nullptr &&
         std::all_of(counts, counts + ranks, [](int count) { return count >= 0; });
}

Outgoing::Outgoing(void const* buffer, std::size_t count, Layout const& layout, MPI_Comm scratch)
    : data_(static_cast<std::byte const*>(buffer)), bytes_(count * layout.bytes) {
  if (layout.dense) return;
  packed_ = room_for(bytes_);
  pack(packed_.get(), buffer, count, layout, scratch);
  data_ = packed_.get();
}

Outgoing::Outgoing(void const* buffer, MpiParts const& parts, Layout const& layout, MPI_Comm scratch, bool copy)
    : counts_(counts_in_bytes(parts, layout)) {
  if (!copy && in_place(parts, layout, offsets_, bytes_)) {
    data_ = static_cast<std::byte const*>(buffer);
    return;
  }
  offsets_.clear();
  bytes_ = sum(counts_);
  packed_ = room_for(bytes_);
  data_ = packed_.get();
  auto* to = packed_.get();
  for (int rank = 0; rank < parts.ranks; ++rank) {
    if (parts.counts[rank] == 0) continue;
    auto const* const from = static_cast<std::byte const*>(buffer) + parts.displacements[rank] * layout.extent;
    to = pack(to, from, static_cast<std::size_t>(parts.counts[rank]), layout, scratch);
  }
}

void Outgoing::keep_apart_from(Incoming const& to) {
  if (packed_ || data_ + bytes_ <= to.data() || to.data() + to.bytes() <= data_) return;
  auto const whole = counts_.empty();
  packed_ = room_for(whole ? bytes_ : sum(counts_));
  auto* place = packed_.get();
  for (std::size_t part = 0; part < std::max<std::size_t>(counts_.size(), 1); ++part) {
    auto const bytes = whole ? bytes_ : counts_[part];
    if (bytes > 0) std::memcpy(place, data_ + (whole ? 0 : offsets_[part]), bytes);
    place += bytes;
  }
  offsets_.clear();
  data_ = packed_.get();
  bytes_ = static_cast<std::size_t>(place - packed_.get());
}

std::size_t Outgoing::offset_of(std::size_t rank) const noexcept {
  return offsets_.empty()
             ? std::accumulate(counts_.begin(), counts_.begin() + static_cast<std::ptrdiff_t>(rank), std::size_t{0})
             : offsets_[rank];
}

Incoming::Incoming(void* buffer, std::size_t count, Layout const& layout, MPI_Comm scratch)
    : layout_(layout), scratch_(scratch), data_(static_cast<std::byte*>(buffer)), bytes_(count * layout.bytes) {
  if (layout.dense) return;
  stretches_.push_back({data_, count});
  packed_ = room_for(bytes_);
  data_ = packed_.get();
}

Incoming::Incoming(void* buffer, MpiParts const& parts, Layout const& layout, MPI_Comm scratch)
    : layout_(layout), scratch_(scratch), counts_(counts_in_bytes(parts, layout)) {
  if (in_place(parts, layout, offsets_, bytes_)) {
    data_ = static_cast<std::byte*>(buffer);
    return;
  }
  offsets_.clear();
  bytes_ = sum(counts_);
  packed_ = room_for(bytes_);
  data_ = packed_.get();
  for (int rank = 0; rank < parts.ranks; ++rank) {
    if (parts.counts[rank] == 0) continue;
    stretches_.push_back({static_cast<std::byte*>(buffer) + parts.displacements[rank] * layout.extent,
                          static_cast<std::size_t>(parts.counts[rank])});
  }
}

void Incoming::deliver() const {
  std::byte const* from = packed_.get();
  for (auto const& stretch : stretches_) from = unpack(stretch.at, from, stretch.count, layout_, scratch_);
}

}  // namespace weft::preload
