#include "collectives/cases/layout.hpp"

#include <algorithm>
#include <numeric>

namespace weft::test {
namespace {

Division divide(Counts const& counts, bool gaps) {
  Division division{counts, {}};
  if (!gaps) return division;
  division.offsets.resize(counts.size());
  std::size_t next = 3;
  for (std::size_t r = counts.size(); r-- > 0;) {  // the last rank's first
    division.offsets[r] = next;
    next += counts[r] + r % 3;
  }
  return division;
}

Counts column(std::vector<Counts> const& matrix, int to) {
  Counts result;
  for (auto const& row : matrix) result.push_back(row[static_cast<std::size_t>(to)]);
  return result;
}

/// The operations whose buffers are of one size everywhere.
Layout whole_buffers(Case const& one, int rank) {
  Layout layout;
  layout.send = layout.recv = one.count;
  auto const last = one.kind == Kind::scan ? rank + 1 : one.kind == Kind::exscan ? rank : one.ranks;
  if (one.kind == Kind::broadcast) {
    layout.pieces = {{0, one.count, one.root, one.root + 1, 0}};
  } else if (one.kind == Kind::reduce && rank != one.root) {
    layout.recv = 0;
  } else if (last > 0) {
    layout.pieces = {{0, one.count, 0, last, 0}};
  }
  if ((one.in_place && layout.recv == layout.send) || one.kind == Kind::broadcast) layout.place = 0;
  return layout;
}

/// A buffer of all parts on one side, one part on the other.
Layout shards(Case const& one, int rank, bool gathers, bool rooted) {
  auto const unequal = !one.matrix.empty();
  auto const equal = Counts(static_cast<std::size_t>(one.ranks), one.count);
  auto const division = divide(unequal ? one.matrix[0] : equal, unequal && one.gaps);
  auto const has_all = !rooted || rank == one.root;
  auto const own = division.count(rank);
  Layout layout;
  (gathers ? layout.send : layout.recv) = own;
  (gathers ? layout.recv : layout.send) = has_all ? division.end() : 0;
  if (gathers && has_all) {
    for (int r = 0; r < one.ranks; ++r) layout.pieces.push_back({division.offset(r), division.count(r), r, r + 1, 0});
  } else if (!gathers && rooted) {
    layout.pieces = {{0, own, one.root, one.root + 1, division.offset(rank)}};
  } else if (!gathers) {
    layout.pieces = {{0, own, 0, one.ranks, division.offset(rank)}};
  }
  if (unequal && has_all) (gathers ? layout.recvs : layout.sends) = division;
  if (one.in_place && has_all) {
    layout.place = division.offset(rank);
    layout.send_inside = gathers;
    layout.spoils_send = !gathers && !rooted;
  }
  return layout;
}

Layout all_to_all(Case const& one, int rank) {
  Layout layout;
  auto const ranks = static_cast<std::size_t>(one.ranks);
  auto const unequal = one.kind == Kind::all_to_all_v;
  auto const equal = Counts(ranks, one.count);
  auto const sends_of = [&](int r) {
    return divide(unequal ? one.matrix[static_cast<std::size_t>(r)] : equal, unequal && one.gaps);
  };
  auto const sends = sends_of(rank);
  auto const recvs = divide(unequal ? column(one.matrix, rank) : equal, unequal && one.gaps);
  layout.send = sends.end();
  layout.recv = recvs.end();
  for (int r = 0; r < one.ranks; ++r) {
    layout.pieces.push_back({recvs.offset(r), recvs.count(r), r, r + 1, sends_of(r).offset(rank)});
  }
  if (unequal) layout.sends = sends, layout.recvs = recvs;
  if (one.in_place) layout.place = 0;
  return layout;
}

Layout messages(Case const& one, int rank) {
  Layout layout;
  auto const& to = one.receivers;
  auto const from = static_cast<int>(std::find(to.begin(), to.end(), rank) - to.begin());
  // A single message goes from the root; a message to oneself needs send_recv, there or here.
  auto const single = one.kind == Kind::message && to[static_cast<std::size_t>(one.root)] != one.root;
  if (!single || rank == one.root) layout.send = one.count;
  if (!single || from == one.root) layout.recv = one.count, layout.pieces = {{0, one.count, from, from + 1, 0}};
  return layout;
}

}  // namespace

std::size_t Division::offset(int rank) const {
  if (!offsets.empty()) return offsets[static_cast<std::size_t>(rank)];
  return std::accumulate(counts.begin(), counts.begin() + rank, std::size_t{0});
}

std::size_t Division::end() const {
  std::size_t end = 0;
  for (int r = 0; r < static_cast<int>(counts.size()); ++r) end = std::max(end, offset(r) + count(r));
  return end;
}

Layout layout_of(Case const& one, int rank) {
  switch (one.kind) {
    case Kind::all_reduce:
    case Kind::reduce:
    case Kind::scan:
    case Kind::exscan:
    case Kind::broadcast: return whole_buffers(one, rank);
    case Kind::reduce_scatter:
    case Kind::reduce_scatter_v: return shards(one, rank, false, false);
    case Kind::all_gather:
    case Kind::all_gather_v: return shards(one, rank, true, false);
    case Kind::gather:
    case Kind::gather_v: return shards(one, rank, true, true);
    case Kind::scatter:
    case Kind::scatter_v: return shards(one, rank, false, true);
    case Kind::all_to_all:
    case Kind::all_to_all_v: return all_to_all(one, rank);
    default: return messages(one, rank);
  }
}

}  // namespace weft::test
