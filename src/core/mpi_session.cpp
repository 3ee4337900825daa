#include "core/mpi_session.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>

#include "weft/error.hpp"

namespace weft {
namespace {

/// Before it finalises MPI, a process waits at most this long for messages whose receivers have given up.
constexpr std::chrono::seconds kSettling{1};

/// There is only one MPI per process, whatever we do, and so only one session; this is the only place that knows.
struct Current {
  std::mutex mutex;
  std::weak_ptr<MpiSession> session;
};

Current& current() {
  static Current the_process;
  return the_process;
}

using SetYielding = bool (*)(bool);

/// Finds Open MPI's switch that makes every look which finds nothing done yield; null in another MPI.
SetYielding find_yielding() noexcept {
  Dl_info mpi;
  if (dladdr(reinterpret_cast<void*>(&MPI_Init_thread), &mpi) == 0) return nullptr;
  // Also finds symbols of the libraries it needs; it stays loaded.
  auto* const library = dlopen(mpi.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return nullptr;
  return reinterpret_cast<SetYielding>(dlsym(library, "opal_progress_set_yield_when_idle"));
}

bool is_finalised() noexcept {
  int finalised = 0;
  MPI_Finalized(&finalised);
  return finalised != 0;
}

}  // namespace

void check_mpi(int status, char const* call) {
  if (status == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(status, text, &length);
  throw Error(ErrorCode::system,
              fmt::format("{} failed: {}", call, std::string(text, static_cast<std::size_t>(length))));
}

std::shared_ptr<MpiSession> MpiSession::acquire() {
  auto& process = current();
  std::lock_guard const lock(process.mutex);
  auto session = process.session.lock();
  if (!session) {
    session.reset(new MpiSession());
    process.session = session;
  }
  return session;
}

std::string MpiSession::library() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  check_mpi(MPI_Get_library_version(text.data(), &length), "MPI_Get_library_version");
  std::string name(text.data(), static_cast<std::size_t>(length));
  name.resize(std::min(name.size(), name.find_first_of(",\n")));  // what follows is how and where it was built
  std::replace(name.begin(), name.end(), '\t', ' ');              // MPICH: "MPICH Version:\t4.0"
  return name;
}

MpiSession::MpiSession() {
  if (is_finalised()) {
    throw Error(ErrorCode::unsupported, "MPI was finalised already and cannot start again: keep the first bootstrap");
  }
  int initialised = 0;
  check_mpi(MPI_Initialized(&initialised), "MPI_Initialized");
  if (initialised != 0) {
    check_mpi(MPI_Query_thread(&level_), "MPI_Query_thread");
    return;
  }
  check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level_), "MPI_Init_thread");
  owner_ = true;
  if (std::getenv("OMPI_MCA_mpi_yield_when_idle") == nullptr) set_yielding_ = find_yielding();
  if (set_yielding_ != nullptr) set_yielding_(false);
}

MpiSession::Yielding::Yielding(MpiSession& session) : session_(session) {
  if (session_.set_yielding_ == nullptr) return;
  std::lock_guard const lock(session_.yielding_mutex_);
  if (session_.yielding_++ == 0) session_.set_yielding_(true);
}

MpiSession::Yielding::~Yielding() {
  if (session_.set_yielding_ == nullptr) return;
  std::lock_guard const lock(session_.yielding_mutex_);
  if (--session_.yielding_ == 0) session_.set_yielding_(false);
}

MpiSession::~MpiSession() {
  if (is_finalised()) return;
  auto const deadline = std::chrono::steady_clock::now() + kSettling;
  for (sweep(); !remains_.empty() && std::chrono::steady_clock::now() < deadline; sweep()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  Yielding const yielding(*this);
  if (owner_ && std::uncaught_exceptions() == exceptions_) MPI_Finalize();
}

bool MpiSession::admits_this_thread() const noexcept {
  if (level_ >= MPI_THREAD_SERIALIZED) return true;
  int is_main = 0;
  MPI_Is_thread_main(&is_main);
  return is_main != 0;
}

std::unique_lock<std::mutex> MpiSession::enter() {
  if (level_ == MPI_THREAD_MULTIPLE) return {};
  if (!admits_this_thread()) {
    throw Error(ErrorCode::unsupported,
                "MPI was initialised so that only the main thread may call it: use MPI_Init_thread with "
                "MPI_THREAD_MULTIPLE, or leave MPI's initialisation to Weft");
  }
  return std::unique_lock(turn_);
}

void MpiSession::keep(std::unique_ptr<MpiRemains> remains) {
  std::lock_guard const lock(remains_mutex_);
  remains_.push_back(std::move(remains));
}

void MpiSession::sweep() noexcept {
  if (!admits_this_thread() || is_finalised()) return;
  auto const turn = level_ == MPI_THREAD_MULTIPLE ? std::unique_lock<std::mutex>() : std::unique_lock(turn_);
  std::lock_guard const lock(remains_mutex_);
  std::erase_if(remains_, [](auto const& one) { return one->settled(); });
}

std::shared_ptr<MpiCommunicator> MpiCommunicator::duplicate_world() {
  auto session = MpiSession::acquire();
  auto const turn = session->enter();
  MpiSession::Yielding const yielding(*session);
  MPI_Comm handle = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &handle), "MPI_Comm_dup");
  return std::make_shared<MpiCommunicator>(session, handle);
}

std::shared_ptr<MpiCommunicator> MpiCommunicator::world() {
  auto session = MpiSession::acquire();
  auto const turn = session->enter();
  auto all = std::make_shared<MpiCommunicator>(session, MPI_COMM_WORLD);
  all->abandon();
  return all;
}

std::shared_ptr<MpiCommunicator> MpiCommunicator::of(MpiCommunicator& parent, std::span<int const> ranks, int tag) {
  auto const turn = parent.session().enter();
  MpiSession::Yielding const yielding(parent.session());
  MPI_Group everybody = MPI_GROUP_NULL;
  MPI_Group some = MPI_GROUP_NULL;
  MPI_Comm handle = MPI_COMM_NULL;
  check_mpi(MPI_Comm_group(parent.handle(), &everybody), "MPI_Comm_group");
  check_mpi(MPI_Group_incl(everybody, static_cast<int>(ranks.size()), ranks.data(), &some), "MPI_Group_incl");
  check_mpi(MPI_Comm_create_group(parent.handle(), some, tag, &handle), "MPI_Comm_create_group");
  MPI_Group_free(&some);
  MPI_Group_free(&everybody);
  return std::make_shared<MpiCommunicator>(parent.shared_session(), handle);
}

MpiCommunicator::MpiCommunicator(std::shared_ptr<MpiSession> session, MPI_Comm handle)
    : session_(std::move(session)), handle_(handle) {
  if (handle_ != MPI_COMM_WORLD) {
    check_mpi(MPI_Comm_set_errhandler(handle_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  }
  check_mpi(MPI_Comm_rank(handle_, &rank_), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(handle_, &size_), "MPI_Comm_size");
}

MpiCommunicator::~MpiCommunicator() {
  if (abandoned_ || is_finalised() || std::uncaught_exceptions() != exceptions_) return;
  if (!session_->admits_this_thread()) return;
  auto const turn = session_->enter();
  MPI_Comm_free(&handle_);
}

}  // namespace weft
