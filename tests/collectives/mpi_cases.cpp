#include "collectives/mpi_cases.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "collectives/reference.hpp"

namespace weft::test {
namespace {

using Counts = std::vector<std::size_t>;

/// 0, 1, primes, around a line, and larger than blocks are.
constexpr std::size_t kSizes[] = {0, 1, 2, 7, 13, 24, 25, 100, 1009, 20011, 70001, 300007};

struct Case {
  int operation = 0;
  DataType dtype = DataType::f32;
  ReduceOp op = ReduceOp::sum;
  std::size_t count = 0;
  int root = 0;
  bool in_place = false;
  bool symmetric = false;
  bool whole = false;                ///< values are small integers, so that a serial reference is exact
  std::vector<Counts> matrix;        ///< [from][to], for unequal parts
  std::vector<std::size_t> offsets;  ///< of unequal shards, row 0 of the matrix; empty: one after the other
  std::uint64_t seed = 0;

  bool scaled = false;  ///< premul_sum instead of op
  bool user = false;    ///< a function instead of op, of three elements where parts are equal

  [[nodiscard]] Reduction how(int rank) const {
    if (scaled) return Reduction::premul_sum(0.3 * (rank + 1));
    if (user && operation >= 10) return Reduction::user(half_and_add<1>);
    if (user) return Reduction::user(half_and_add<3>, nullptr, 3 * sizeof(float));
    return op;
  }

  /// Not commutative.
  template <std::size_t kFloats>
  static void half_and_add(void* accumulator, void const* next, std::size_t count, void* /*context*/) {
    auto* const a = static_cast<float*>(accumulator);
    auto const* const b = static_cast<float const*>(next);
    for (std::size_t i = 0; i < count * kFloats; ++i) a[i] = a[i] / 2 + b[i];
  }

  [[nodiscard]] std::string describe() const {
    constexpr char const* kNames[] = {"all_reduce", "reduce",    "reduce_scatter",   "all_gather",   "broadcast",
                                      "gather",     "scatter",   "all_to_all",       "scan",         "exscan",
                                      "gather_v",   "scatter_v", "reduce_scatter_v", "all_gather_v", "all_to_all_v"};
    return fmt::format("{} of {} × {}, {}, root {}{}{}{}, seed {}", kNames[operation], count, to_string(dtype),
                       scaled ? "premul_sum"
                       : user ? "user"
                              : to_string(op),
                       root, in_place ? ", in place" : "", symmetric ? ", symmetric" : "",
                       whole ? ", whole numbers" : "", seed);
  }
};

constexpr int kOperations = 15;

class Source {
 public:
  Source(std::uint64_t seed, int ranks) : engine_(seed), ranks_(static_cast<std::size_t>(ranks)) {}

  Case next() {
    Case one;
    one.operation = static_cast<int>(below(kOperations));
    one.dtype = kAllTypes[below(std::size(kAllTypes))];
    do {
      one.op = kAllOps[below(std::size(kAllOps))];
    } while (!supports(one.dtype, one.op) || ((one.operation == 8 || one.operation == 9) && one.op == ReduceOp::avg));
    one.count = kSizes[below(std::size(kSizes))];
    if (below(8) == 0) {
      one.dtype = DataType::f32;
      one.scaled = coin();
      one.user = !one.scaled;
      one.count = one.count / 3 * 3;
    }
    one.root = static_cast<int>(below(ranks_));
    one.in_place = coin();
    one.symmetric = coin();
    one.whole = coin() && !one.scaled && !one.user;
    for (std::size_t r = 0; r < ranks_; ++r) one.matrix.push_back(counts(one.count / ranks_ + 1));
    if (coin()) one.offsets = scattered(one.matrix[0]);
    one.seed = engine_();
    return one;
  }

  static Counts scattered(Counts const& counts) {
    Counts result(counts.size());
    std::size_t next = 3;
    for (std::size_t r = counts.size(); r-- > 0;) {
      result[r] = next;
      next += counts[r] + 2;
    }
    return result;
  }

 private:
  std::size_t below(std::size_t limit) { return std::uniform_int_distribution<std::size_t>(0, limit - 1)(engine_); }
  bool coin() { return below(2) == 1; }
  Counts counts(std::size_t most) {
    Counts result(ranks_);
    for (auto& count : result) count = below(4) == 0 ? 0 : below(most);
    return result;
  }

  std::mt19937_64 engine_;
  std::size_t ranks_;
};

/// What a rank starts a case with: equal on both communicators.
void fill(BufferView const& view, Case const& one, int rank, std::uint64_t salt) {
  if (one.whole) return store_values(make_values(view.count, view.dtype, one.op, rank, one.seed % 1000 + salt), view);
  std::mt19937_64 engine(one.seed + salt * 977 + static_cast<std::uint64_t>(rank));
  if (!is_integer(view.dtype)) {
    std::vector<double> values(view.count);
    for (auto& value : values) value = static_cast<double>(engine() >> 11U) * 0x1p-50 - 4;
    return store_values(values, view);
  }
  auto* bytes = static_cast<unsigned char*>(view.data);
  for (std::size_t i = 0; i < view.bytes(); ++i) bytes[i] = static_cast<unsigned char>(engine() >> 40U);
}

std::size_t end_of(Counts const& counts, Counts const& offsets) {
  std::size_t end = 0;
  for (std::size_t r = 0; r < counts.size(); ++r) end = std::max(end, offsets[r] + counts[r]);
  return end;
}

Counts column(std::vector<Counts> const& matrix, std::size_t to) {
  Counts result;
  for (auto const& row : matrix) result.push_back(row[to]);
  return result;
}

/// Runs the case; what this rank ends with, send buffer and receive buffer.
std::vector<std::byte> run(Communicator& world, Case const& one) {
  auto const rank = static_cast<std::size_t>(world.rank());
  auto const ranks = static_cast<std::size_t>(world.size());
  auto const n = one.count;
  auto const root = one.root;
  auto const is_root = world.rank() == root;
  auto const make = [&](std::size_t count) {
    auto buffer = one.symmetric ? world.allocate(count, one.dtype) : Buffer::host(count, one.dtype);
    fill(buffer.view(), one, world.rank(), count);
    return buffer;
  };
  std::vector<std::byte> result;
  auto const keep = [&](Buffer const& buffer) {
    auto const* const bytes = static_cast<std::byte const*>(buffer.data());
    result.insert(result.end(), bytes, bytes + buffer.view().bytes());
  };
  auto const nothing = BufferView(nullptr, 0, one.dtype);
  auto const& shards = one.matrix[0];
  auto const shard_offsets = one.offsets.empty() ? Counts{} : one.offsets;
  std::size_t shards_end = 0;
  std::size_t shard_first = 0;
  for (std::size_t r = 0, next = 0; r < ranks; next += shards[r++]) {
    auto const first = one.offsets.empty() ? next : one.offsets[r];
    shards_end = std::max(shards_end, first + shards[r]);
    if (r == rank) shard_first = first;
  }
  switch (one.operation) {
    case 0:
    case 1:
    case 8:
    case 9: {
      auto send = make(n);
      auto recv = make(n);
      auto const to = one.in_place ? send.view() : recv.view();
      if (one.operation == 0) world.all_reduce(send.view(), to, one.how(world.rank()));
      if (one.operation == 1) world.reduce(send.view(), is_root ? to : nothing, one.how(world.rank()), root);
      if (one.operation == 8) world.scan(send.view(), to, one.how(world.rank()));
      if (one.operation == 9) world.exscan(send.view(), to, one.how(world.rank()));
      keep(send), keep(recv);
      break;
    }
    case 2:
    case 3: {
      auto whole = make(n * ranks);
      auto part = make(n);
      auto const own = one.in_place ? whole.view().slice(rank * n, n) : part.view();
      if (one.operation == 2) world.reduce_scatter(whole.view(), own, one.how(world.rank()));
      if (one.operation == 3) world.all_gather(own, whole.view());
      // In place, a reduce_scatter leaves the rest of the buffer as it was on every back end that works in private
      // memory; what direct ones leave there is nobody's.
      keep(part);
      if (one.operation == 3 || !one.in_place) keep(whole);
      if (one.operation == 2 && one.in_place) {
        auto const* const bytes = static_cast<std::byte const*>(own.data);
        result.insert(result.end(), bytes, bytes + own.bytes());
      }
      break;
    }
    case 4: {
      auto buffer = make(n);
      world.broadcast(buffer.view(), root);
      keep(buffer);
      break;
    }
    case 5:
    case 6: {
      auto part = make(n);
      auto all = make(n * ranks);
      auto const own = one.in_place && is_root ? all.view().slice(rank * n, n) : part.view();
      auto const at_root = is_root ? all.view() : nothing;
      if (one.operation == 5) world.gather(own, at_root, root);
      if (one.operation == 6) world.scatter(at_root, own, root);
      keep(part), keep(all);
      break;
    }
    case 7: {
      auto send = make(n * ranks);
      auto recv = make(n * ranks);
      world.all_to_all(send.view(), one.in_place ? send.view() : recv.view());
      keep(send), keep(recv);
      break;
    }
    case 10:
    case 11: {
      auto part = make(*std::max_element(shards.begin(), shards.end()));  // symmetric memory is of one size
      auto all = make(shards_end);
      auto const at_root = is_root ? all.view() : nothing;
      Parts const parts = is_root ? Parts{shards, shard_offsets} : Parts{};
      if (one.operation == 10) world.gather(part.view().slice(0, shards[rank]), at_root, parts, root);
      if (one.operation == 11) world.scatter(at_root, parts, part.view().slice(0, shards[rank]), root);
      keep(part), keep(all);
      break;
    }
    case 12:
    case 13: {
      auto part = make(*std::max_element(shards.begin(), shards.end()));  // symmetric memory is of one size
      auto all = make(shards_end);
      auto const own = one.in_place ? all.view().slice(shard_first, shards[rank]) : part.view().slice(0, shards[rank]);
      if (one.operation == 12) world.reduce_scatter(all.view(), own, {shards, shard_offsets}, one.how(world.rank()));
      if (one.operation == 13) world.all_gather(own, all.view(), {shards, shard_offsets});
      keep(part);
      if (one.operation == 13 || !one.in_place) keep(all);
      if (one.operation == 12 && one.in_place) {
        auto const* const bytes = static_cast<std::byte const*>(own.data);
        result.insert(result.end(), bytes, bytes + own.bytes());
      }
      break;
    }
    default: {
      auto const gives = one.matrix[rank];
      auto const gets = column(one.matrix, rank);
      auto const send_offsets = Source::scattered(gives);
      auto const recv_offsets = Source::scattered(gets);
      std::size_t most = 0;
      for (std::size_t r = 0; r < ranks; ++r) {
        auto const theirs = column(one.matrix, r);
        most = std::max(
            {most, end_of(one.matrix[r], Source::scattered(one.matrix[r])), end_of(theirs, Source::scattered(theirs))});
      }
      auto send = make(most);
      auto recv = make(most);
      world.all_to_all(send.view(), {gives, send_offsets}, recv.view(), {gets, recv_offsets});
      keep(send), keep(recv);
    }
  }
  return result;
}

/// all_reduce and scan of whole numbers, where the other ranks' contributions can be made here.
void check_serially(Communicator& world, Case const& one) {
  std::vector<std::vector<double>> contributions;
  auto buffer = Buffer::host(one.count, one.dtype);
  for (int rank = 0; rank < world.size(); ++rank) {
    fill(buffer.view(), one, rank, one.count);
    contributions.push_back(load_values(buffer.view()));
  }
  fill(buffer.view(), one, world.rank(), one.count);
  if (one.operation == 8) {
    contributions.resize(static_cast<std::size_t>(world.rank()) + 1);
    world.scan(buffer.view(), buffer.view(), one.op);
  } else {
    world.all_reduce(buffer.view(), buffer.view(), one.op);
  }
  auto wanted = Buffer::host(one.count, one.dtype);
  store_values(reduce_values(contributions, one.dtype, one.op), wanted.view());
  if (load_values(wanted.view()) != load_values(buffer.view())) {
    throw std::runtime_error(fmt::format("rank {}: differs from the serial result: {}", world.rank(), one.describe()));
  }
}

}  // namespace

void compare_communicators(Communicator& tested, Communicator& reference, int cases, std::uint64_t seed) {
  Source source(seed, tested.size());
  for (int i = 0; i < cases; ++i) {
    auto const one = source.next();
    auto const got = run(tested, one);
    auto const wanted = run(reference, one);
    if (got != wanted) {
      auto const differs = std::mismatch(got.begin(), got.end(), wanted.begin(), wanted.end()).first - got.begin();
      throw std::runtime_error(fmt::format("rank {}: case {}, byte {} of {} differs: {}", tested.rank(), i, differs,
                                           got.size(), one.describe()));
    }
    if (one.whole && (one.operation == 0 || one.operation == 8)) check_serially(tested, one);
  }
}

}  // namespace weft::test
