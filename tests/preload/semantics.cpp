// A program of MPI's collective semantics, knowing nothing of Weft: prints what every rank received, one line a case.
// Run with and without libweft_mpi.so it has to print the same.
//   semantics SEED CASES
#include <mpi.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

namespace {

using Random = std::mt19937;  // the same draws on every rank, unless a case says otherwise

int draw(Random& random, int low, int high) {
  return low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1));
}

std::uint64_t hash(std::vector<unsigned char> const& bytes) {
  std::uint64_t value = 0xcbf29ce484222325U;
  for (auto const byte : bytes) value = (value ^ byte) * 0x100000001b3U;
  return value;
}

/// The ranks that take part, and where the lines go.
struct Ranks {
  MPI_Comm comm = MPI_COMM_WORLD;
  int rank = 0;
  int size = 1;
};

Ranks ranks_of(MPI_Comm comm) {
  Ranks ranks{comm};
  MPI_Comm_rank(comm, &ranks.rank);
  MPI_Comm_size(comm, &ranks.size);
  return ranks;
}

void report(int number, std::string const& what, std::vector<unsigned char> const& received) {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  std::printf("%05d rank %d %s %016llx\n", number, rank, what.c_str(), static_cast<unsigned long long>(hash(received)));
}

struct Type {
  char const* name;
  MPI_Datatype handle;
  bool floating;
  bool is_signed;
};

std::vector<Type> const& types() {
  static std::vector<Type> const all{{"int", MPI_INT, false, true},
                                     {"double", MPI_DOUBLE, true, true},
                                     {"float", MPI_FLOAT, true, true},
                                     {"long", MPI_LONG, false, true},
                                     {"unsigned", MPI_UNSIGNED, false, false},
                                     {"ulong", MPI_UNSIGNED_LONG, false, false},
                                     {"schar", MPI_SIGNED_CHAR, false, true},
                                     {"uchar", MPI_UNSIGNED_CHAR, false, false},
                                     {"short", MPI_SHORT, false, true},
                                     {"ushort", MPI_UNSIGNED_SHORT, false, false},
                                     {"int64", MPI_INT64_T, false, true},
                                     {"uint32", MPI_UINT32_T, false, false},
                                     {"aint", MPI_AINT, false, true},
                                     {"llong", MPI_LONG_LONG, false, true}};
  return all;
}

/// `count` elements of small values, for which sums and products are exact in every type and order.
std::vector<unsigned char> values(Type const& type, int count, Random& random, bool factors) {
  int bytes = 0;
  MPI_Type_size(type.handle, &bytes);
  std::vector<unsigned char> data(static_cast<std::size_t>(count * bytes));
  for (int i = 0; i < count; ++i) {
    auto const value = factors ? draw(random, 1, 2) * (type.is_signed && draw(random, 0, 1) == 1 ? -1 : 1)
                               : draw(random, type.is_signed ? -6 : 0, 6);
    auto* const at = data.data() + i * bytes;
    if (type.floating && bytes == 4) {
      auto const number = static_cast<float>(value);
      std::memcpy(at, &number, 4);
    } else if (type.floating) {
      auto const number = static_cast<double>(value);
      std::memcpy(at, &number, 8);
    } else {
      auto const number = static_cast<std::int64_t>(value);
      std::memcpy(at, &number, static_cast<std::size_t>(bytes));
    }
  }
  return data;
}

struct Op {
  char const* name;
  MPI_Op handle;
  bool needs_integers;
};

std::vector<Op> const& ops() {
  static std::vector<Op> const all{{"sum", MPI_SUM, false},  {"prod", MPI_PROD, false}, {"min", MPI_MIN, false},
                                   {"max", MPI_MAX, false},  {"land", MPI_LAND, true},  {"lor", MPI_LOR, true},
                                   {"lxor", MPI_LXOR, true}, {"band", MPI_BAND, true},  {"bor", MPI_BOR, true},
                                   {"bxor", MPI_BXOR, true}};
  return all;
}

int any_count(Random& random) {
  constexpr int kCounts[] = {0, 1, 2, 3, 7, 13, 64, 257, 1000, 4099, 30011, 70001};
  return kCounts[random() % (sizeof kCounts / sizeof *kCounts)];
}

void reduction(Ranks const& ranks, int number, Random& random) {
  auto const& type = types()[random() % types().size()];
  auto const& op = ops()[random() % ops().size()];
  // MPI has no logical operations on addresses.
  if (op.needs_integers && (type.floating || (type.handle == MPI_AINT && op.name[0] == 'l'))) return;
  int bytes = 0;
  MPI_Type_size(type.handle, &bytes);
  auto const count = any_count(random);
  auto const which = draw(random, 0, 5);
  auto const in_place = draw(random, 0, 1) == 1;
  auto const root = draw(random, 0, ranks.size - 1);
  auto const all = which == 2 ? count * ranks.size : count;
  std::vector<int> parts;
  for (int i = 0; i < ranks.size; ++i) parts.push_back(draw(random, 0, 300));
  int total = 0;
  for (auto const part : parts) total += part;
  Random mine(random() + static_cast<unsigned>(ranks.rank) * 977U);
  auto send = values(type, which == 3 ? total : all, mine, op.handle == MPI_PROD);
  auto recv = in_place ? send : std::vector<unsigned char>(send.size(), 0x5a);
  send.resize(send.size() + 1);  // never a null address
  recv.resize(recv.size() + 1);
  void const* from = in_place ? MPI_IN_PLACE : send.data();
  char const* name = "";
  auto kept = static_cast<std::size_t>(count * bytes);
  switch (which) {
    case 0:
      name = "allreduce";
      MPI_Allreduce(from, recv.data(), count, type.handle, op.handle, ranks.comm);
      break;
    case 1:
      name = "reduce";
      if (ranks.rank != root) from = send.data();
      MPI_Reduce(from, recv.data(), count, type.handle, op.handle, root, ranks.comm);
      if (ranks.rank != root) kept = 0;
      break;
    case 2:
      name = "reduce_scatter_block";
      MPI_Reduce_scatter_block(from, recv.data(), count, type.handle, op.handle, ranks.comm);
      break;
    case 3:
      name = "reduce_scatter";
      MPI_Reduce_scatter(from, recv.data(), parts.data(), type.handle, op.handle, ranks.comm);
      kept = static_cast<std::size_t>(parts[static_cast<std::size_t>(ranks.rank)] * bytes);
      break;
    case 4:
      name = "scan";
      MPI_Scan(from, recv.data(), count, type.handle, op.handle, ranks.comm);
      break;
    default:
      name = "exscan";
      MPI_Exscan(from, recv.data(), count, type.handle, op.handle, ranks.comm);
      if (ranks.rank == 0) kept = 0;  // undefined there
  }
  recv.resize(kept);
  report(number, std::string(name) + " " + type.name + " " + op.name + (in_place ? " in place" : ""), recv);
}

/// Ways to lay out n blocks of 3 ints, with equal type signatures; ranks choose differently.
class Blocks {
 public:
  explicit Blocks(int kind) : kind_(kind) {
    switch (kind) {
      case 0: MPI_Type_contiguous(3, MPI_INT, &type_); break;
      case 1: MPI_Type_vector(3, 1, 2, MPI_INT, &type_); break;
      case 2: {  // in an order of its own
        int const displacements[] = {2, 0, 1};
        MPI_Type_create_indexed_block(3, 1, displacements, MPI_INT, &type_);
        break;
      }
      case 3: {
        MPI_Datatype three = MPI_DATATYPE_NULL;
        MPI_Type_contiguous(3, MPI_INT, &three);
        MPI_Type_create_resized(three, 0, 20, &type_);
        MPI_Type_free(&three);
        break;
      }
      case 4: {
        MPI_Datatype three = MPI_DATATYPE_NULL;
        MPI_Type_contiguous(3, MPI_INT, &three);
        MPI_Type_dup(three, &type_);
        MPI_Type_free(&three);
        break;
      }
      default: {  // backwards: begins before the buffer's address
        int const displacements[] = {0, -1, -2};
        MPI_Type_create_indexed_block(3, 1, displacements, MPI_INT, &type_);
        MPI_Datatype plain = type_;
        MPI_Type_create_resized(plain, -8, 12, &type_);
        MPI_Type_free(&plain);
      }
    }
    MPI_Type_commit(&type_);
  }
  ~Blocks() { MPI_Type_free(&type_); }
  Blocks(Blocks const&) = delete;
  Blocks& operator=(Blocks const&) = delete;
  [[nodiscard]] MPI_Datatype type() const { return type_; }

 private:
  int kind_;
  MPI_Datatype type_ = MPI_DATATYPE_NULL;
};

/// A buffer with room for `blocks` blocks of any kind, and their data in order.
class Field {
 public:
  explicit Field(int blocks) : bytes_(static_cast<std::size_t>(blocks) * 24 + 64, 0x33) {}
  [[nodiscard]] void* at() { return bytes_.data() + 16; }
  void fill(Random& random) {
    for (auto& byte : bytes_) byte = static_cast<unsigned char>(random());
  }
  [[nodiscard]] std::vector<unsigned char> const& bytes() const { return bytes_; }

 private:
  std::vector<unsigned char> bytes_;
};

/// Counts and displacements with gaps, drawn alike on all ranks.
struct Layout {
  std::vector<int> counts;
  std::vector<int> displacements;
  int total = 0;

  Layout(int ranks, Random& random) {
    for (int i = 0; i < ranks; ++i) {
      counts.push_back(draw(random, 0, 3) == 0 ? 0 : draw(random, 0, 900));
      displacements.push_back(total);
      total += counts.back() + draw(random, 0, 2);
    }
  }
  /// Another order of the parts in memory.
  void reverse() {
    int next = 0;
    for (std::size_t i = counts.size(); i-- > 0;) {
      displacements[i] = next;
      next += counts[i];
    }
  }
};

void movement(Ranks const& ranks, int number, Random& random) {
  auto const which = draw(random, 0, 8);
  auto const root = draw(random, 0, ranks.size - 1);
  auto const in_place = draw(random, 0, 2) == 0;
  auto const count = any_count(random) % 9000;
  Layout layout(ranks.size, random);
  Random mine(random() + static_cast<unsigned>(ranks.rank) * 31U);
  Blocks const sent(draw(mine, 0, 5));
  Blocks const received(draw(mine, 0, 5));
  if (draw(mine, 0, 1) == 1) layout.reverse();
  auto const blocks = std::max(count * ranks.size, layout.total) + 1;
  Field send(blocks);
  Field recv(blocks);
  send.fill(mine);
  recv.fill(mine);
  auto const own = static_cast<std::size_t>(ranks.rank);
  auto const is_root = ranks.rank == root;
  void* const nothing = MPI_IN_PLACE;
  char const* name = "";
  switch (which) {
    case 0:
      name = "bcast";
      MPI_Bcast(recv.at(), count, received.type(), root, ranks.comm);
      break;
    case 1:
      name = "gather";
      MPI_Gather(in_place && is_root ? nothing : send.at(), count, sent.type(), recv.at(), count, received.type(), root,
                 ranks.comm);
      break;
    case 2:
      name = "gatherv";
      MPI_Gatherv(in_place && is_root ? nothing : send.at(), layout.counts[own], sent.type(), recv.at(),
                  layout.counts.data(), layout.displacements.data(), received.type(), root, ranks.comm);
      break;
    case 3:
      name = "scatter";
      MPI_Scatter(send.at(), count, sent.type(), in_place && is_root ? nothing : recv.at(), count, received.type(),
                  root, ranks.comm);
      break;
    case 4:
      name = "scatterv";
      MPI_Scatterv(send.at(), layout.counts.data(), layout.displacements.data(), sent.type(),
                   in_place && is_root ? nothing : recv.at(), layout.counts[own], received.type(), root, ranks.comm);
      break;
    case 5:
      name = "allgather";
      MPI_Allgather(in_place ? nothing : send.at(), count, sent.type(), recv.at(), count, received.type(), ranks.comm);
      break;
    case 6:
      name = "allgatherv";
      MPI_Allgatherv(in_place ? nothing : send.at(), layout.counts[own], sent.type(), recv.at(), layout.counts.data(),
                     layout.displacements.data(), received.type(), ranks.comm);
      break;
    case 7:
      name = "alltoall";
      MPI_Alltoall(in_place ? nothing : send.at(), count, sent.type(), recv.at(), count, received.type(), ranks.comm);
      break;
    default: {
      name = "alltoallv";
      // What a gives b and b gives a are equal, so that it may be in place.
      std::vector<int> counts;
      std::vector<int> displacements;
      for (int peer = 0; peer < ranks.size; ++peer) {
        counts.push_back((number * 7 + peer + ranks.rank) % 5 * 100 + (peer + ranks.rank) % 3);
        displacements.push_back(peer * 450);
      }
      Field give(ranks.size * 450);
      Field get(ranks.size * 450);
      give.fill(mine);
      get.fill(mine);
      MPI_Alltoallv(in_place ? nothing : give.at(), counts.data(), displacements.data(), sent.type(), get.at(),
                    counts.data(), displacements.data(), received.type(), ranks.comm);
      return report(number, name, get.bytes());
    }
  }
  report(number, std::string(name) + (in_place ? " in place" : ""), recv.bytes());
}

/// What Weft cannot know: has to pass through.
void others(Ranks const& ranks, int number) {
  struct Pair {
    double value;
    int rank;
  };
  Pair const mine{static_cast<double>((ranks.rank * 7 + number) % 5), ranks.rank};
  Pair best{};
  MPI_Allreduce(&mine, &best, 1, MPI_DOUBLE_INT, MPI_MAXLOC, ranks.comm);
  MPI_Op op = MPI_OP_NULL;
  MPI_Op_create(
      [](void* in, void* inout, int* count, MPI_Datatype*) {
        for (int i = 0; i < *count; ++i)
          static_cast<int*>(inout)[i] = static_cast<int*>(in)[i] * 3 - static_cast<int*>(inout)[i];
      },
      0, &op);
  int value = ranks.rank + number;
  int result = 0;
  MPI_Allreduce(&value, &result, 1, MPI_INT, op, ranks.comm);
  MPI_Op_free(&op);
  MPI_Request request = MPI_REQUEST_NULL;
  int sum = 0;
  int blocking = 0;
  MPI_Iallreduce(&value, &sum, 1, MPI_INT, MPI_SUM, ranks.comm, &request);
  MPI_Allreduce(&value, &blocking, 1, MPI_INT, MPI_MAX, ranks.comm);  // between start and end of the other
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  std::vector<unsigned char> bytes(4 * sizeof(int));
  int const all[] = {best.rank, result, sum, blocking};
  std::memcpy(bytes.data(), all, sizeof all);
  report(number, "others", bytes);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  auto const seed = argc > 1 ? std::atoi(argv[1]) : 1;
  auto const cases = argc > 2 ? std::atoi(argv[2]) : 100;
  auto const world = ranks_of(MPI_COMM_WORLD);
  MPI_Comm duplicate = MPI_COMM_NULL;
  MPI_Comm reversed = MPI_COMM_NULL;
  MPI_Comm parity = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &duplicate);
  MPI_Comm_split(MPI_COMM_WORLD, 0, -world.rank, &reversed);
  MPI_Comm_split(MPI_COMM_WORLD, world.rank % 2, world.rank, &parity);
  std::vector<MPI_Comm> const communicators{MPI_COMM_WORLD, duplicate, reversed, parity, MPI_COMM_SELF};
  Random random(static_cast<unsigned>(seed));
  for (int number = 0; number < cases; ++number) {
    auto const state = random();
    auto const ranks = ranks_of(communicators[random() % communicators.size()]);
    Random own(static_cast<unsigned>(state));  // communicators draw differently many numbers
    auto const kind = draw(own, 0, 9);
    if (kind < 4)
      reduction(ranks, number, own);
    else if (kind < 9)
      movement(ranks, number, own);
    else
      others(ranks, number);
    if (number % 10 == 0) MPI_Barrier(ranks.comm);
  }
  MPI_Comm_free(&duplicate);
  MPI_Comm_free(&reversed);
  MPI_Comm_free(&parity);
  MPI_Finalize();
  return 0;
}
