#include "preload/library.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <new>
#include <string_view>

#include "core/log.hpp"
#include "weft/error.hpp"

namespace weft::preload {
namespace {

// Constant-initialised, like Library::instance: nothing of this library runs in processes that never call MPI.
constinit std::mutex starting;
constinit std::atomic<bool> closed{false};

// Counts freed communicators: a handle may stand for another communicator afterwards.
constinit std::atomic<std::uint64_t> freed{0};

/// The communicator that this thread used last, as looking its attribute up costs as much as a small collective.
struct Recent {
  MPI_Comm communicator;
  std::uint64_t freed;
  Attachment* attachment;
};
constinit thread_local Recent recent{};

constinit thread_local Freeing const* innermost = nullptr;

/// Adapts the configuration to programs that do not know of Weft, where the environment says nothing else.
Config adapted(Config config) {
  // They may compute for hours between collectives, so a rank waits as long as MPI would.
  if (std::getenv("WEFT_TIMEOUT") == nullptr) config.timeout = kLongestTimeout;
  // Signals and threads belong to the program.
  if (std::getenv("WEFT_FLIGHT_RECORDER") == nullptr) config.flight_recorder = 0;
  // Weft writes no files where nobody asked for any.
  if (std::getenv("WEFT_TUNING_CACHE") == nullptr) config.tuning_cache.reset();
  return config;
}

}  // namespace

constinit std::atomic<Library*> Library::instance{nullptr};

Library* Library::start() {
  if (closed.load(std::memory_order_acquire)) return nullptr;
  int initialised = 0;
  int finalised = 0;
  PMPI_Initialized(&initialised);
  PMPI_Finalized(&finalised);
  if (initialised == 0 || finalised != 0) return nullptr;
  std::lock_guard const lock(starting);
  if (instance.load() != nullptr || closed.load()) return instance.load();
  MPI_Comm scratch = MPI_COMM_NULL;
  PMPI_Comm_split(MPI_COMM_SELF, 0, 0, &scratch);  // a duplicate would copy the program's attributes
  PMPI_Comm_set_errhandler(scratch, MPI_ERRORS_RETURN);
  auto* const library = new Library(scratch);
  instance.store(library, std::memory_order_release);
  return library;
}

Library::Library(MPI_Comm scratch) : scratch_(scratch) {
  std::optional<Config> config;
  try {
    config = adapted(Config::from_environment());
    keeps_statistics_ = config->mpi_stats;
  } catch (Error const& error) {
    log(LogLevel::error, fmt::format("MPI keeps all collectives: {}", error.what()));
  }
  pool_ = std::make_unique<Pool>(std::move(config), [scratch] { progress(scratch); });
  PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, on_communicator_freed, &key_, this);
  PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, on_finalize, &at_finalize_, this);
  PMPI_Comm_set_attr(MPI_COMM_SELF, at_finalize_, this);
}

void Library::stop() {
  auto const* const library = instance.load(std::memory_order_acquire);
  closed.store(true, std::memory_order_release);
  if (library == nullptr) return;
  auto key = library->at_finalize_;
  PMPI_Comm_delete_attr(MPI_COMM_SELF, key);  // on_finalize() does the rest
  PMPI_Comm_free_keyval(&key);
}

Attachment& Library::attachment(MPI_Comm communicator) {
  auto const now = freed.load(std::memory_order_acquire);
  if (recent.attachment != nullptr && recent.communicator == communicator && recent.freed == now)
    return *recent.attachment;
  if (Freeing::includes(communicator)) return being_freed_;
  void* found = nullptr;
  int exists = 0;
  if (PMPI_Comm_get_attr(communicator, key_, &found, &exists) != MPI_SUCCESS) return invalid_;
  auto& attachment = exists != 0 ? *static_cast<Attachment*>(found) : attach(communicator);
  recent = {communicator, now, &attachment};
  return attachment;
}

Attachment& Library::attach(MPI_Comm communicator) {
  auto made = std::make_unique<Attachment>();
  made->communicator = communicator;
  int between = 0;
  int size = 0;
  PMPI_Comm_test_inter(communicator, &between);
  PMPI_Comm_size(communicator, &size);
  if (between != 0)
    made->why = Outcome::intercommunicator;
  else if (size == 1)
    made->why = Outcome::one_rank;
  else if (size > Pool::kMostRanks)
    made->why = Outcome::too_many_ranks;
  else
    made->team = pool_->acquire(communicator, made->why);
  auto* const attachment = made.release();
  PMPI_Comm_set_attr(communicator, key_, attachment);
  std::lock_guard const lock(mutex_);
  attachments_.insert(attachment);
  return *attachment;
}

/// Local, and called at different times on different ranks.
int Library::on_communicator_freed(MPI_Comm, int, void* attachment, void* library) {
  freed.fetch_add(1, std::memory_order_acq_rel);
  auto& self = *static_cast<Library*>(library);
  std::unique_ptr<Attachment> const gone(static_cast<Attachment*>(attachment));
  {
    std::lock_guard const lock(self.mutex_);
    self.attachments_.erase(gone.get());
  }
  self.pool_->release(std::move(gone->team));
  return MPI_SUCCESS;
}

int Library::on_finalize(MPI_Comm, int, void*, void* library) {
  auto* const self = static_cast<Library*>(library);
  closed.store(true, std::memory_order_release);
  instance.store(nullptr, std::memory_order_release);
  self->close();
  delete self;
  return MPI_SUCCESS;
}

void Library::close() noexcept {
  int rank = 0;
  PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (keeps_statistics_ && rank == 0) {
    auto const report = statistics_.report();
    std::fprintf(stderr, "weft: collectives of rank 0\n%s", report.c_str());
  }
  // What is left is MPI_COMM_WORLD and whatever the program did not free; deleting the attribute does the rest.
  for (auto const attachments = attachments_; auto* const attachment : attachments)
    PMPI_Comm_delete_attr(attachment->communicator, key_);
  pool_->clear();
  PMPI_Comm_free_keyval(&key_);
  PMPI_Comm_free(&scratch_);
}

Freeing::Freeing(MPI_Comm communicator) noexcept : communicator_(communicator), outer_(innermost) {
  innermost = this;
  recent = {};
}

Freeing::~Freeing() {
  innermost = outer_;
}

bool Freeing::includes(MPI_Comm communicator) noexcept {
  for (auto const* each = innermost; each != nullptr; each = each->outer_) {
    if (each->communicator_ == communicator) return true;
  }
  return false;
}

void Library::progress(MPI_Comm scratch) noexcept {
  // Where no message can match, MPI_Iprobe always drives all of MPI's communication.
  int found = 0;
  PMPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, scratch, &found, MPI_STATUS_IGNORE);
}

int Library::fail(Function function, Attachment& attachment, std::exception const& error) noexcept {
  attachment.team->broken = true;
  int code = MPI_ERR_OTHER;
  if (dynamic_cast<std::bad_alloc const*>(&error) != nullptr) code = MPI_ERR_NO_MEM;
  if (auto const* const ours = dynamic_cast<Error const*>(&error)) {
    if (ours->code() == ErrorCode::invalid_argument) code = MPI_ERR_ARG;
    if (ours->code() == ErrorCode::out_of_memory) code = MPI_ERR_NO_MEM;
  }
  log(LogLevel::error, fmt::format("{}: {}", to_string(function), error.what()));
  PMPI_Comm_call_errhandler(attachment.communicator, code);
  return code;
}

}  // namespace weft::preload
