// Programs that an interposed MPI library easily gets wrong, knowing nothing of Weft: `traps NAME` leaves with 0 when
// MPI's meaning was kept.
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cfenv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

namespace {

int rank = 0;
int size = 1;
int provided = MPI_THREAD_SINGLE;

void require(bool holds, char const* what) {
  if (holds) return;
  std::fprintf(stderr, "rank %d: does not hold: %s\n", rank, what);
  MPI_Abort(MPI_COMM_WORLD, 3);
}

int sum_on(MPI_Comm comm, int value) {
  int sum = 0;
  MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, comm);
  return sum;
}

/// A large message needs both sides' attention: a rank that waits in a barrier has to give it.
void progress_in_waits() {
  std::vector<char> data(8 << 20, static_cast<char>(rank));
  for (int round = 0; round < 5; ++round) {
    if (rank == 0) {
      MPI_Request request = MPI_REQUEST_NULL;
      MPI_Isend(data.data(), static_cast<int>(data.size()), MPI_CHAR, 1, 0, MPI_COMM_WORLD, &request);
      MPI_Barrier(MPI_COMM_WORLD);
      MPI_Wait(&request, MPI_STATUS_IGNORE);
    } else {
      if (rank == 1)
        MPI_Recv(data.data(), static_cast<int>(data.size()), MPI_CHAR, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      MPI_Barrier(MPI_COMM_WORLD);
    }
  }
  require(rank != 1 || data.back() == 0, "the message arrived");
}

/// The same with calls that hardly wait: ranks call until the message has arrived.
void progress_in_loops() {
  std::vector<char> data(8 << 20, static_cast<char>(rank));
  MPI_Request request = MPI_REQUEST_NULL;
  if (rank == 0) MPI_Isend(data.data(), static_cast<int>(data.size()), MPI_CHAR, 1, 0, MPI_COMM_WORLD, &request);
  if (rank == 1) MPI_Irecv(data.data(), static_cast<int>(data.size()), MPI_CHAR, 0, 0, MPI_COMM_WORLD, &request);
  for (int missing = 1; missing > 0;) {
    int done = 1;
    if (rank == 1) MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    missing = sum_on(MPI_COMM_WORLD, done == 0 ? 1 : 0);
  }
  if (rank == 0) MPI_Wait(&request, MPI_STATUS_IGNORE);
}

/// A message nobody receives yet must not keep waits from making progress.
void progress_beside_unexpected_messages() {
  int token = 7;
  MPI_Request to_self = MPI_REQUEST_NULL;
  MPI_Isend(&token, 1, MPI_INT, 0, 3, MPI_COMM_SELF, &to_self);
  MPI_Request to_all = MPI_REQUEST_NULL;
  MPI_Isend(&token, 1, MPI_INT, (rank + 1) % size, 3, MPI_COMM_WORLD, &to_all);
  progress_in_waits();
  int got = 0;
  MPI_Recv(&got, 1, MPI_INT, 0, 3, MPI_COMM_SELF, MPI_STATUS_IGNORE);
  MPI_Recv(&got, 1, MPI_INT, (rank + size - 1) % size, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  MPI_Wait(&to_self, MPI_STATUS_IGNORE);
  MPI_Wait(&to_all, MPI_STATUS_IGNORE);
  require(got == 7, "the small messages arrived");
}

/// MPI gives the handle of a freed communicator to the next one, which may have other ranks.
void handles_are_reused() {
  for (int round = 0; round < 300; ++round) {
    MPI_Comm comm = MPI_COMM_NULL;
    auto const colour = round % 3 == 0 ? 0 : (round % 3 == 1 ? rank % 2 : rank / 2);
    MPI_Comm_split(MPI_COMM_WORLD, colour, round % 2 == 0 ? rank : -rank, &comm);
    int members = 0;
    MPI_Comm_size(comm, &members);
    require(sum_on(comm, 1) == members, "the sum is over the new communicator's ranks");
    int own = 0;
    MPI_Comm_rank(comm, &own);
    int first = rank;
    MPI_Bcast(&first, 1, MPI_INT, 0, comm);
    require(own != 0 || first == rank, "the root is the new communicator's");
    MPI_Comm_free(&comm);
  }
}

/// Freed at different times, and in different orders, on different ranks.
void freed_in_any_order() {
  for (int round = 0; round < 10; ++round) {
    std::vector<MPI_Comm> comms(8);
    for (auto& comm : comms) MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    for (auto& comm : comms) require(sum_on(comm, 1) == size, "every duplicate works");
    // MPI_Comm_free is collective, but the callbacks run when each rank likes: disconnect the same ones at other
    // moments.
    for (std::size_t i = 0; i < comms.size(); ++i) {
      if (rank % 2 == 1) usleep(200);
      MPI_Comm_free(&comms[i]);
    }
  }
}

long resident_kib() {
  long pages = 0;
  long resident = 0;
  if (FILE* const file = std::fopen("/proc/self/statm", "r")) {
    if (std::fscanf(file, "%ld %ld", &pages, &resident) != 2) resident = 0;
    std::fclose(file);
  }
  return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

int open_files() {
  int count = 0;
  for (int fd = 0; fd < 4096; ++fd) count += access(("/proc/self/fd/" + std::to_string(fd)).c_str(), F_OK) == 0 ? 1 : 0;
  return count;
}

void a_thousand_communicators() {
  auto const round = [] {
    MPI_Comm comm = MPI_COMM_NULL;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    require(sum_on(comm, rank) == size * (size - 1) / 2, "the duplicate works");
    MPI_Comm_free(&comm);
  };
  for (int i = 0; i < 50; ++i) round();
  auto const before = resident_kib();
  auto const files = open_files();
  auto const start = MPI_Wtime();
  for (int i = 0; i < 1000; ++i) round();
  auto const seconds = MPI_Wtime() - start;
  if (rank == 0) std::fprintf(stderr, "1000 communicators: %.3f s, %ld KiB more\n", seconds, resident_kib() - before);
  require(resident_kib() - before < 20 * 1024, "memory does not grow with communicators freed");
  // A rank that has waited long for another keeps one file, to watch it.
  require(open_files() <= files + size, "no file stays open");
}

/// More at a time than anybody would give memory to.
void many_at_once() {
  std::vector<MPI_Comm> comms(300);
  for (auto& comm : comms) MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  for (int round = 0; round < 2; ++round) {
    for (auto& comm : comms) require(sum_on(comm, 1) == size, "every one works");
  }
  for (auto& comm : comms) MPI_Comm_free(&comm);
}

/// Collectives on different communicators, in different threads, at once.
void threads() {
  if (provided != MPI_THREAD_MULTIPLE) return;
  constexpr int kThreads = 4;
  std::vector<MPI_Comm> comms(kThreads);
  for (auto& comm : comms) MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  std::vector<std::thread> running;
  for (int t = 0; t < kThreads; ++t) {
    running.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) {
        require(sum_on(comms[static_cast<std::size_t>(t)], t + i) == size * (t + i), "each thread gets its own sum");
        std::vector<int> values(200, rank == i % size ? t * 1000 + i : -1);
        MPI_Bcast(values.data(), 200, MPI_INT, i % size, comms[static_cast<std::size_t>(t)]);
        require(values == std::vector<int>(200, t * 1000 + i), "each thread gets its own broadcast");
        if (i % 50 == 0) {
          MPI_Comm own = MPI_COMM_NULL;
          MPI_Comm_dup(comms[static_cast<std::size_t>(t)], &own);
          require(sum_on(own, 1) == size, "communicators are made in threads");
          MPI_Comm_free(&own);
        }
      }
    });
  }
  for (auto& thread : running) thread.join();
  for (auto& comm : comms) MPI_Comm_free(&comm);
}

int handled = 0;
int last_code = 0;
void handler(MPI_Comm*, int* code, ...) {
  ++handled;
  last_code = *code;
}

int class_of(int code) {
  int result = 0;
  MPI_Error_class(code, &result);
  return result;
}

/// Bad arguments reach the communicator's error handler, with MPI's own codes; the communicator works on.
void error_handlers() {
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Errhandler mine = MPI_ERRHANDLER_NULL;
  MPI_Comm_create_errhandler(handler, &mine);
  MPI_Comm_set_errhandler(comm, mine);
  require(sum_on(comm, 1) == size, "works before");
  int value = 1;
  int result = 0;
  int expected = 0;
  auto const fails = [&](int code, char const* what) {
    ++expected;
    require(code != MPI_SUCCESS, what);
    require(handled == expected && last_code == code, what);
    if (rank == 0) std::printf("%s: class %d\n", what, class_of(code));
  };
  fails(MPI_Allreduce(&value, &result, -1, MPI_INT, MPI_SUM, comm), "negative count");
  fails(MPI_Allreduce(&value, &result, 1, MPI_DATATYPE_NULL, MPI_SUM, comm), "no type");
  fails(MPI_Allreduce(&value, &result, 1, MPI_INT, MPI_OP_NULL, comm), "no operation");
  fails(MPI_Allreduce(&value, &result, 1, MPI_FLOAT, MPI_BAND, comm), "bits of a float");
  fails(MPI_Bcast(&value, 1, MPI_INT, size, comm), "no such root");
  fails(MPI_Bcast(&value, 1, MPI_INT, -1, comm), "negative root");
  MPI_Datatype uncommitted = MPI_DATATYPE_NULL;
  MPI_Type_contiguous(2, MPI_INT, &uncommitted);
  int two[2] = {};
  fails(MPI_Bcast(two, 1, uncommitted, 0, comm), "uncommitted type");
  MPI_Type_free(&uncommitted);
  fails(MPI_Gather(&value, -1, MPI_INT, two, 1, MPI_INT, 0, comm), "negative count of a gather");
  fails(MPI_Alltoall(&value, -1, MPI_INT, two, -1, MPI_INT, comm), "negative counts of an all-to-all");
  require(sum_on(comm, 1) == size, "works after");
  MPI_Errhandler_free(&mine);
  MPI_Comm_free(&comm);
}

/// Returns how the survivors learn of a dead rank; under `mpirun --enable-recovery`.
void dead_peer() {
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  sum_on(MPI_COMM_WORLD, 1);
  if (rank == 1) _exit(0);
  auto const start = MPI_Wtime();
  int value = 1;
  int sum = 0;
  auto const code = MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  std::printf("code %d after %.2f s\n", class_of(code), MPI_Wtime() - start);
  std::fflush(stdout);
  _exit(code != MPI_SUCCESS && MPI_Wtime() - start < 2 ? 0 : 4);
}

/// Different calls at the same time, which MPI leaves undefined, are told from each other.
void different_calls() {
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  std::vector<int> values(200, rank);
  auto code = MPI_Bcast(values.data(), rank == 0 ? 100 : 200, MPI_INT, 0, MPI_COMM_WORLD);
  if (code == MPI_SUCCESS && rank == 0) code = MPI_Barrier(MPI_COMM_WORLD);  // a root does not wait for the others
  std::printf("code %d\n", class_of(code));
  require(values == std::vector<int>(200, rank), "nothing was moved");
}

/// Attributes, names and communicators of the program's own are as they were, and its callbacks run.
int deletions = 0;
void own_attributes() {
  int key = MPI_KEYVAL_INVALID;
  MPI_Comm_create_keyval(
      MPI_COMM_DUP_FN,
      [](MPI_Comm, int, void*, void*) {
        ++deletions;
        return MPI_SUCCESS;
      },
      &key, nullptr);
  int value = 5;
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Comm_set_attr(comm, key, &value);
  require(sum_on(comm, 1) == size, "works");
  MPI_Comm copy = MPI_COMM_NULL;
  MPI_Comm_dup(comm, &copy);
  require(sum_on(copy, 1) == size, "a copy of a used communicator works");
  MPI_Comm_free(&comm);
  require(sum_on(copy, 2) == 2 * size, "and still does after the other went");
  MPI_Comm_free(&copy);
  require(deletions == 2, "both deletions were told");
  MPI_Comm_free_keyval(&key);
}

/// Delete callbacks of the program's own may use the communicator that is being freed, whose handle is used again.
void calls_in_delete_callbacks() {
  for (int round = 0; round < 3; ++round) {
    int key = MPI_KEYVAL_INVALID;
    MPI_Comm_create_keyval(
        MPI_COMM_NULL_COPY_FN, [](MPI_Comm comm, int, void*, void*) { return MPI_Barrier(comm); }, &key, nullptr);
    MPI_Comm comm = MPI_COMM_NULL;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    // Attributes go in turn, the last one first: Weft's is not in the same place on all ranks.
    if (rank % 2 == 0) MPI_Comm_set_attr(comm, key, nullptr);
    require(sum_on(comm, 1) == size, "works");
    if (rank % 2 == 1) MPI_Comm_set_attr(comm, key, nullptr);
    round == 2 ? MPI_Comm_disconnect(&comm) : MPI_Comm_free(&comm);
    MPI_Comm_free_keyval(&key);
    MPI_Comm half = MPI_COMM_NULL;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
    int members = 0;
    MPI_Comm_size(half, &members);
    require(sum_on(half, 1) == members, "the next communicator, of other ranks, works");
    MPI_Comm_free(&half);
  }
}

/// The same of MPI_COMM_SELF's, which run in MPI_Finalize, before or after Weft's attribute there.
void calls_in_finalize() {
  int key = MPI_KEYVAL_INVALID;
  MPI_Comm_create_keyval(
      MPI_COMM_NULL_COPY_FN, [](MPI_Comm, int, void*, void*) { return MPI_Barrier(MPI_COMM_WORLD); }, &key, nullptr);
  if (rank == 0) MPI_Barrier(MPI_COMM_SELF);
  MPI_Comm_set_attr(MPI_COMM_SELF, key, nullptr);
  require(sum_on(MPI_COMM_WORLD, 1) == size, "works");
}

/// What means nothing on a rank may be anything there.
void exscan_into_nothing() {
  int const mine = rank + 1;
  int sum = -1;
  MPI_Exscan(&mine, rank == 0 ? nullptr : &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  require(mine == rank + 1 && sum == (rank == 0 ? -1 : rank * (rank + 1) / 2), "the sum is that of the ranks before");
}

/// Parts that leave gaps, and what is sent in them: no element is in both.
void interlaced_parts() {
  auto const ranks = static_cast<std::size_t>(size);
  std::vector<int> ones(ranks, 1);
  std::vector<int> even(ranks);
  for (std::size_t i = 0; i < ranks; ++i) even[i] = static_cast<int>(2 * i);
  for (int function = 0; function < 4; ++function) {
    std::vector<int> both(2 * ranks, -1);
    auto* const odd = both.data() + 1;
    auto const is_root = rank == 1;
    for (std::size_t i = 0; i < ranks; ++i) odd[2 * i] = 10 * rank + static_cast<int>(i);
    if (function == 0) MPI_Allgatherv(odd, 1, MPI_INT, both.data(), ones.data(), even.data(), MPI_INT, MPI_COMM_WORLD);
    if (function == 1) MPI_Gatherv(odd, 1, MPI_INT, both.data(), ones.data(), even.data(), MPI_INT, 1, MPI_COMM_WORLD);
    if (function == 2)
      MPI_Scatterv(odd, ones.data(), even.data(), MPI_INT, both.data() + (is_root ? 2 : 0), 1, MPI_INT, 1,
                   MPI_COMM_WORLD);
    if (function == 3)
      MPI_Alltoallv(odd, ones.data(), even.data(), MPI_INT, both.data(), ones.data(), even.data(), MPI_INT,
                    MPI_COMM_WORLD);
    for (std::size_t i = 0; i < ranks; ++i) {
      require(odd[2 * i] == 10 * rank + static_cast<int>(i), "what is sent is left alone");
      auto const from = static_cast<int>(i);
      if (function == 0 || (function == 1 && is_root)) require(both[2 * i] == 10 * from, "every part arrived");
      if (function == 3) require(both[2 * i] == 10 * from + rank, "every part is the one for this rank");
    }
    if (function == 2) require(both[is_root ? 2 : 0] == 10 + rank, "the part is this rank's");
  }
}

/// Elements of a few bytes raise what the data raise and nothing else, and trap for nothing.
void small_floats_raise_nothing() {
  auto const reduce = [](auto value, MPI_Datatype type, int count, MPI_Op op) {
    std::vector<decltype(value)> from(static_cast<std::size_t>(count), value);
    std::vector<decltype(value)> to(from.size());
    MPI_Allreduce(from.data(), to.data(), count, type, op, MPI_COMM_WORLD);
    return to.back();
  };
  // Large values first, which stay where small payloads lie.
  for (int i = 0; i < 4; ++i) reduce(rank == 0 ? 1e38F : 1.0F, MPI_FLOAT, 14, MPI_PROD);
  for (int i = 0; i < 4; ++i) reduce(rank == 0 ? 1e308 : 1.0, MPI_DOUBLE, 7, MPI_PROD);
  std::feclearexcept(FE_ALL_EXCEPT);
  feenableexcept(FE_OVERFLOW | FE_INVALID | FE_DIVBYZERO);
  for (int round = 0; round < 300; ++round) {
    for (int count = 1; count < 9; ++count) {
      for (auto const op : {MPI_SUM, MPI_PROD, MPI_MAX}) {
        reduce(rank == 0 ? 2.0F : 1.0F, MPI_FLOAT, count, op);
        reduce(rank == 0 ? 2.0 : 1.0, MPI_DOUBLE, count, op);
      }
    }
  }
  require(std::fetestexcept(FE_OVERFLOW | FE_INVALID | FE_DIVBYZERO | FE_UNDERFLOW) == 0, "no flag is set");
  fedisableexcept(FE_ALL_EXCEPT);
}

/// More bytes in one element of a derived type than an int counts.
void a_large_element() {
  constexpr int kChunk = 1000000;
  constexpr int kChunks = 2200;
  constexpr int kRest = 123;
  auto const bytes = std::size_t{kChunk} * kChunks + kRest;
  MPI_Datatype chunk = MPI_DATATYPE_NULL;
  std::array<MPI_Datatype, 2> types{MPI_DATATYPE_NULL, MPI_BYTE};
  MPI_Type_contiguous(kChunk, MPI_BYTE, &chunk);
  MPI_Type_contiguous(kChunks, chunk, types.data());
  std::array<int, 2> const counts{1, kRest};
  std::array<MPI_Aint, 2> const places{0, static_cast<MPI_Aint>(bytes) - kRest};
  MPI_Datatype whole = MPI_DATATYPE_NULL;
  MPI_Type_create_struct(2, counts.data(), places.data(), types.data(), &whole);
  MPI_Type_commit(&whole);
  std::vector<char> data(bytes, static_cast<char>(rank + 1));
  data[bytes / 2] = static_cast<char>(10 * (rank + 1));
  MPI_Bcast(data.data(), 1, whole, 0, MPI_COMM_WORLD);
  require(data.front() == 1 && data.back() == 1 && data[bytes / 2] == 10, "all of it arrived");
  for (auto* const type : {&whole, types.data(), &chunk}) MPI_Type_free(type);
}

/// MPI makes types of Fortran's kinds itself and unnamed; whoever looks into a type that has one inside must not free
/// it.
void types_of_fortrans_kinds() {
  for (int time = 0; time < 3; ++time) {
    MPI_Datatype kind = MPI_DATATYPE_NULL;
    MPI_Datatype three = MPI_DATATYPE_NULL;
    MPI_Type_create_f90_real(15, 307, &kind);
    MPI_Type_contiguous(3, kind, &three);
    MPI_Type_commit(&three);
    std::array<double, 3> values{1.0 + rank, 2.0 + rank, 3.0 + rank};
    MPI_Bcast(values.data(), 1, three, 1, MPI_COMM_WORLD);
    require(values == std::array<double, 3>{2.0, 3.0, 4.0}, "the root's values");
    MPI_Type_free(&three);
  }
}

/// Only the rank whose call is wrong hears of it, though nobody has used the communicator.
void a_bad_call_of_one_rank() {
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  int value = 1;
  std::vector<int> all(static_cast<std::size_t>(size));
  std::vector<int> ones(all.size(), 1);
  auto const wrong = [](int code) { require(class_of(code) == MPI_ERR_COUNT, "the count is wrong"); };
  if (rank == 0) {
    wrong(MPI_Gather(&value, -1, MPI_INT, all.data(), 1, MPI_INT, 0, comm));
    wrong(MPI_Gatherv(&value, -1, MPI_INT, all.data(), ones.data(), ones.data(), MPI_INT, 0, comm));
    wrong(MPI_Scatter(all.data(), 1, MPI_INT, &value, -1, MPI_INT, 0, comm));
    wrong(MPI_Scatterv(all.data(), ones.data(), ones.data(), MPI_INT, &value, -1, MPI_INT, 0, comm));
    wrong(MPI_Allgatherv(&value, -1, MPI_INT, all.data(), ones.data(), ones.data(), MPI_INT, comm));
  }
  require(sum_on(comm, 1) == size, "the communicator works");
  MPI_Comm_free(&comm);
}

/// What `call` returns on a communicator of its own, or a barrier behind it: a call need not wait for the others.
template <typename Call>
int code_of(Call const& call) {
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  require(sum_on(comm, 1) == size, "the communicator works");
  auto const code = call(comm);
  auto const behind = MPI_Barrier(comm);
  MPI_Comm_free(&comm);
  return code != MPI_SUCCESS ? code : behind;
}

/// Two sides of one rank's call that do not go with one another are an error, and no rank waits for another for ever.
void sides_of_different_sizes() {
  std::vector<int> few(static_cast<std::size_t>(4 * size));
  std::vector<int> many(static_cast<std::size_t>(8 * size));
  auto const capacity = [&](MPI_Comm comm) {
    return MPI_Scatter(few.data(), 4, MPI_INT, many.data(), 8, MPI_INT, 0, comm);
  };
  require(code_of(capacity) != MPI_SUCCESS, "scatter: all receive more than the root sends");
  auto const gathered = [&](MPI_Comm comm) {
    return MPI_Gather(few.data(), 4, MPI_INT, many.data(), 8, MPI_INT, 0, comm);
  };
  require(code_of(gathered) != MPI_SUCCESS, "gather: the root has room for more than all send");
  auto const own_send = [&](MPI_Comm comm) {
    return MPI_Gather(few.data(), rank == 0 ? 2 : 4, MPI_INT, many.data(), 4, MPI_INT, 0, comm);
  };
  require((code_of(own_send) != MPI_SUCCESS) == (rank == 0), "gather: the root alone sends less");
  auto const own_receive = [&](MPI_Comm comm) {
    return MPI_Scatter(few.data(), 4, MPI_INT, many.data(), rank == 0 ? 8 : 4, MPI_INT, 0, comm);
  };
  require((code_of(own_receive) != MPI_SUCCESS) == (rank == 0), "scatter: the root alone receives more");
  std::vector<int> const counts(static_cast<std::size_t>(size), 4);
  std::vector<int> places;
  for (int i = 0; i < size; ++i) places.push_back(4 * i);
  auto const less = [&](MPI_Comm comm) {
    return MPI_Allgatherv(few.data(), rank == 0 ? 2 : 4, MPI_INT, many.data(), counts.data(), places.data(), MPI_INT,
                          comm);
  };
  require(code_of(less) != MPI_SUCCESS, "allgatherv: one rank sends less");
  auto own_counts = counts;
  if (rank == 0) own_counts[0] = 8;
  auto const other = [&](MPI_Comm comm) {
    return MPI_Allgatherv(few.data(), 4, MPI_INT, many.data(), own_counts.data(), places.data(), MPI_INT, comm);
  };
  places.clear();
  for (int i = 0; i < size; ++i) places.push_back(8 * i);
  require((code_of(other) != MPI_SUCCESS) == (rank == 0), "allgatherv: one rank expects more of itself");
}

/// A number that is no communicator is an error, of MPI's class, told once.
void no_communicator() {
  MPI_Errhandler mine = MPI_ERRHANDLER_NULL;
  MPI_Comm_create_errhandler(handler, &mine);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, mine);
  auto const code = MPI_Barrier(MPI_Comm_f2c(12345));
  require(class_of(code) == MPI_ERR_COMM && handled == 1, "the communicator is wrong");
  MPI_Errhandler_free(&mine);
}

/// Inter-communicators pass through.
void inter_communicators() {
  MPI_Comm half = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
  MPI_Comm between = MPI_COMM_NULL;
  MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - rank % 2, 0, &between);
  int others = 0;
  MPI_Comm_remote_size(between, &others);
  for (int i = 0; i < 3; ++i) require(sum_on(between, 1) == others, "the sum is over the other group");
  MPI_Barrier(between);
  MPI_Comm_free(&between);
  MPI_Comm_free(&half);
}

/// Some ranks wait for long, asleep: nothing times out and the call completes.
void a_late_rank() {
  if (rank == 0) usleep(1500000);
  require(sum_on(MPI_COMM_WORLD, 1) == size, "the sum waits for everybody");
}

/// Left at the end: MPI_COMM_WORLD's and a communicator that is never freed.
void never_freed() {
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  require(sum_on(comm, 1) == size && sum_on(MPI_COMM_WORLD, 1) == size, "both work");
}

struct Trap {
  char const* name;
  void (*run)();
};
constexpr Trap kTraps[] = {
    {"progress_in_waits", progress_in_waits},
    {"progress_in_loops", progress_in_loops},
    {"progress_beside_unexpected_messages", progress_beside_unexpected_messages},
    {"handles_are_reused", handles_are_reused},
    {"freed_in_any_order", freed_in_any_order},
    {"a_thousand_communicators", a_thousand_communicators},
    {"many_at_once", many_at_once},
    {"threads", threads},
    {"error_handlers", error_handlers},
    {"dead_peer", dead_peer},
    {"different_calls", different_calls},
    {"own_attributes", own_attributes},
    {"calls_in_delete_callbacks", calls_in_delete_callbacks},
    {"calls_in_finalize", calls_in_finalize},
    {"exscan_into_nothing", exscan_into_nothing},
    {"interlaced_parts", interlaced_parts},
    {"small_floats_raise_nothing", small_floats_raise_nothing},
    {"a_large_element", a_large_element},
    {"types_of_fortrans_kinds", types_of_fortrans_kinds},
    {"a_bad_call_of_one_rank", a_bad_call_of_one_rank},
    {"sides_of_different_sizes", sides_of_different_sizes},
    {"no_communicator", no_communicator},
    {"inter_communicators", inter_communicators},
    {"a_late_rank", a_late_rank},
    {"never_freed", never_freed},
};

}  // namespace

int main(int argc, char** argv) {
  std::string const name = argc > 1 ? argv[1] : "";
  int flag = 0;
  MPI_Initialized(&flag);  // allowed before MPI_Init
  MPI_Init_thread(&argc, &argv, name == "threads" ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  auto const trap =
      std::find_if(std::begin(kTraps), std::end(kTraps), [&](Trap const& one) { return one.name == name; });
  require(trap != std::end(kTraps), "the name is known");
  trap->run();
  MPI_Finalize();
  return 0;
}
