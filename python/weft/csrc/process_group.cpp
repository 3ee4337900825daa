#include "process_group.hpp"

#include <Python.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include <ATen/Functions.h>
#include <c10/util/Exception.h>

#include "aftermath.hpp"
#include "interpreter_exit.hpp"
#include "mpi_lifetime.hpp"
#include "run.hpp"
#include "shared_heap.hpp"
#include "store_bootstrap.hpp"
#include "weft/error.hpp"

namespace weft::torch_backend {
namespace {

/// A gradient's collective follows the last one's within tens of microseconds where there are many small ones; whenever
/// the stream's thread wakes up meanwhile, it takes the core from the thread that enqueues them.
constexpr std::chrono::microseconds kLinger{200};

/// Lets other threads have the interpreter while this one waits for them.
class GilReleased {
 public:
  GilReleased() : state_(Py_IsInitialized() != 0 && PyGILState_Check() != 0 ? PyEval_SaveThread() : nullptr) {}
  ~GilReleased() {
    if (state_ != nullptr) PyEval_RestoreThread(state_);
  }
  GilReleased(GilReleased const&) = delete;
  GilReleased& operator=(GilReleased const&) = delete;

 private:
  PyThreadState* state_;
};

/// torch passes its own half hour where the program names no timeout. Programs write "for ever" as any long time.
std::chrono::milliseconds limit(std::chrono::milliseconds asked) {
  if (asked != kBackendDefaultTimeout || std::getenv("WEFT_TIMEOUT") == nullptr)
    return std::min(asked, kLongestTimeout);
  return Config::from_environment().timeout;
}

/// Of groups to come, of all threads.
std::optional<EmulatedLink>& emulated_link() {
  static std::optional<EmulatedLink> link;
  return link;
}

/// "group 1 of ranks 0, 2": torch's name, and who is in it where torch says so, of more than eight the first and last.
std::string name_of(ProcessGroupWeft::Options const& opts) {
  constexpr std::size_t kMostNamed = 8;
  if (opts.group_name.empty()) return "";
  auto name = "group " + opts.group_name;
  auto const& ranks = opts.global_ranks_in_group;
  if (ranks.empty()) return name;
  name += ranks.size() == 1 ? " of rank " : " of ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (ranks.size() > kMostNamed && i >= 3 && i + 1 < ranks.size()) continue;
    if (i > 0) name += ranks.size() > kMostNamed && i + 1 == ranks.size() ? ", … " : ", ";
    name += std::to_string(ranks[i]);
  }
  return name;
}

Communicator create(c10::intrusive_ptr<c10d::Store> store, int rank, int size, ProcessGroupWeft::Options const& opts) {
  auto config = Config::from_environment();
  config.timeout = opts.timeout;
  CommunicatorOptions options;
  options.config = config;
  options.heap = installed_heap();
  options.emulated_link = emulated_link();
  options.name = name_of(opts);
  auto bootstrap = std::make_shared<StoreBootstrap>(std::move(store), rank, size, opts.timeout, options.name);
  try {
    return Communicator::create(std::move(bootstrap), options);
  } catch (Error const& error) {
    throw_as_torch(error);
  }
}

}  // namespace

void emulate_link(std::optional<std::string> const& text) {
  try {
    emulated_link() = text ? std::optional(EmulatedLink::parse(*text)) : std::nullopt;
  } catch (Error const& error) {
    throw_as_torch(error);
  }
}

ProcessGroupWeft::ProcessGroupWeft(c10::intrusive_ptr<c10d::Store> store, int rank, int size,
                                   c10::intrusive_ptr<Options> options)
    : Backend(rank, size),
      options_(std::move(options)),
      store_(store),
      monitored_barrier_(store_, rank, size),
      process_(::getpid()),
      communicator_(std::make_shared<Communicator>(create(std::move(store), rank, size, *options_))),
      messenger_(std::make_shared<Messenger>(*communicator_)) {
  init();
}

c10::intrusive_ptr<ProcessGroupWeft> ProcessGroupWeft::make(c10::intrusive_ptr<c10d::Store> store, int rank, int size,
                                                            c10::intrusive_ptr<Options> options) {
  options->timeout = limit(options->timeout);
  auto group = c10::make_intrusive<ProcessGroupWeft>(std::move(store), rank, size, std::move(options));
  mpi_lifetime().add(group);
  return group;
}

ProcessGroupWeft::~ProcessGroupWeft() {
  shutdown();
}

bool ProcessGroupWeft::is_parents() const {
  return process_ != ::getpid();
}

/// In a forked child: the group is its parent's, whose peers must not hear that it left; its threads are not here, and
/// its locks may be held by them.
void ProcessGroupWeft::leave_to_parent() noexcept {
  new auto(std::move(communicator_));
  new auto(std::move(messenger_));
  new auto(std::move(stream_));
  new auto(std::move(gpu_));
  new auto(std::move(pairs_));
  new auto(pool_);
  new auto(aftermath_);
}

void ProcessGroupWeft::shutdown() {
  if (is_parents()) return leave_to_parent();
  GilReleased const released;
  std::shared_ptr<Communicator> communicator;
  std::shared_ptr<Messenger> messenger;
  std::shared_ptr<Stream> stream;
  std::map<int, std::shared_ptr<Communicator>> pairs;
  {
    std::lock_guard const calls(calls_mutex_);
    std::lock_guard const state(state_mutex_);
    coalescing_ = std::thread::id();
    coalesced_.reset();
    communicator = std::move(communicator_);
    messenger = std::move(messenger_);
    stream = std::move(stream_);
    pairs.swap(pairs_);
  }
  if (stream) stream->synchronize();
  pool_->close();
  messenger.reset();
  aftermath_->finish();
}

void ProcessGroupWeft::abort() {
  if (is_parents()) return;
  std::shared_ptr<Communicator> communicator;
  std::vector<std::shared_ptr<Communicator>> pairs;
  {
    std::lock_guard const lock(state_mutex_);
    communicator = communicator_;
    for (auto const& [peer, pair] : pairs_) pairs.push_back(pair);
  }
  auto const reason = "rank " + std::to_string(getRank()) + " aborted its process group";
  if (communicator) communicator->abort(reason);
  for (auto const& pair : pairs) pair->abort(reason);
}

c10d::ErrorType ProcessGroupWeft::getError() {
  return aftermath_->error();
}

void ProcessGroupWeft::setTimeout(std::chrono::milliseconds timeout) {
  std::lock_guard const lock(calls_mutex_);
  options_->timeout = std::min(timeout, kLongestTimeout);
}

c10::intrusive_ptr<c10d::Backend> ProcessGroupWeft::split(c10::intrusive_ptr<c10d::Store> const& store,
                                                          std::vector<int> const& ranks,
                                                          c10::intrusive_ptr<c10d::Backend::Options> const& opts) {
  auto const mine = std::find(ranks.begin(), ranks.end(), getRank());
  if (mine == ranks.end()) return nullptr;
  auto options = c10::make_intrusive<Options>(opts ? opts->timeout : options_->timeout);
  if (opts) {
    options->group_name = opts->group_name;
    options->global_ranks_in_group = opts->global_ranks_in_group;
  }
  return make(store, static_cast<int>(mine - ranks.begin()), static_cast<int>(ranks.size()), std::move(options));
}

bool ProcessGroupWeft::supportsTensorAlloc(c10::DeviceIndex device) {
  return device < 0 || moves_gpu_tensors();  // below 0: CPU tensors
}

at::Tensor ProcessGroupWeft::allocateTensor(long size, at::TensorOptions options) {
  constexpr Operation kWhat{c10d::OpType::UNKNOWN, "allocate_tensor", "weft:allocate_tensor"};
  TORCH_CHECK_VALUE(size >= 0, place(kWhat), ": ", size, " elements");
  std::lock_guard const lock(calls_mutex_);
  static_cast<void>(communicator(kWhat));
  auto const bytes = static_cast<std::size_t>(size) * options.dtype().itemsize();
  auto device = options.device();
  std::optional<TensorPool::Home> home;
  if (!device.is_cpu()) {
    if (!device.has_index()) device = c10::impl::VirtualGuardImpl(device.type()).getDevice();
    auto const& gpu = this->gpu(kWhat, device);
    connect(kWhat, device);
    home = TensorPool::Home{gpu, gpu->current()};
    if (gpu->is_capturing(home->stream)) return at::empty({size}, options);
  }
  try {
    auto memory = pool_->take(communicator_, bytes, home);
    if (!memory) return at::empty({size}, options);
    return TensorPool::tensor_over(std::move(memory), size, device, options);
  } catch (Error const& error) {
    aftermath_->rethrow(error);
  }
}

Communicator ProcessGroupWeft::duplicate() {
  constexpr Operation kWhat{c10d::OpType::UNKNOWN, "duplicate", "weft:duplicate"};
  std::lock_guard const lock(calls_mutex_);
  auto& communicator = this->communicator(kWhat);
  try {
    return std::move(*communicator.split(0, getRank()));
  } catch (Error const& error) {
    aftermath_->rethrow(error);
  }
}

void ProcessGroupWeft::write_trace(std::string const& path) {
  constexpr Operation kWhat{c10d::OpType::UNKNOWN, "write_trace", "weft:write_trace"};
  auto const trace = overlap_recorder().trace();
  std::lock_guard const lock(calls_mutex_);
  try {
    trace.write(communicator(kWhat), path);
  } catch (Error const& error) {
    aftermath_->rethrow(error);
  }
}

uint64_t ProcessGroupWeft::getSequenceNumberForGroup() {
  std::lock_guard const lock(calls_mutex_);
  return sequence_;
}

void ProcessGroupWeft::describe() {
  if (C10_LIKELY(described_.load(std::memory_order_relaxed))) return;
  if (getGroupDesc() != "undefined") aftermath_->set_description(getGroupDesc());
  described_ = true;
}

Communicator& ProcessGroupWeft::communicator(Operation const& what) {
  describe();
  if (C10_LIKELY(communicator_ != nullptr)) return *communicator_;
  C10_THROW_ERROR(DistBackendError, c10::str(place(what), ": this process group was shut down; make a new one"));
}

Stream& ProcessGroupWeft::stream() {
  if (!stream_) stream_ = std::make_shared<Stream>(Stream::cpu({.name = "weft-torch", .linger = kLinger}));
  return *stream_;
}

CollectiveOptions ProcessGroupWeft::collective_options(How const& how) {
  CollectiveOptions options;
  options.timeout = how.timeout.count() > 0 ? std::min(how.timeout, kLongestTimeout) : options_->timeout;
  if (how.async) options.stream = stream();
  return options;
}

void ProcessGroupWeft::complete_later(c10::intrusive_ptr<ProcessGroupWork> work, weft::Work core, Stream& on,
                                      std::function<void()> land) {
  on.enqueue(
      [aftermath = aftermath_, work = std::move(work), core = std::move(core), land = std::move(land)]() mutable {
        InterpreterExit::Visit const visit(interpreter_exit());
        auto error = aftermath->translated(core.error());
        try {
          if (!error && land) land();
        } catch (...) {
          error = aftermath->translated(std::current_exception());
        }
        if (!visit) {
          work->finish_at_exit(error);
          return leave_to_exit(std::move(work), std::move(land));
        }
        work->finish_elsewhere(error, *aftermath);
        land = nullptr;
        work.reset();
      });
}

void ProcessGroupWeft::startCoalescing() {
  std::lock_guard const lock(calls_mutex_);
  constexpr Operation kWhat{c10d::OpType::COALESCED, "startCoalescing", "weft:coalesced"};
  TORCH_CHECK(!coalesced_, place(kWhat), ": the group is coalescing already; call endCoalescing first");
  static_cast<void>(communicator(kWhat));
  coalesced_ = std::make_unique<Coalesced>();
  coalescing_ = std::this_thread::get_id();
}

c10::intrusive_ptr<c10d::Work> ProcessGroupWeft::endCoalescing() {
  std::lock_guard const lock(calls_mutex_);
  constexpr Operation kWhat{c10d::OpType::COALESCED, "endCoalescing", "weft:coalesced"};
  TORCH_CHECK(coalesced_, place(kWhat), ": the group is not coalescing; call startCoalescing first");
  coalescing_ = std::thread::id();
  auto const coalesced = std::move(coalesced_);
  if (coalesced->gpu) return end_coalescing_on_gpu(kWhat, *coalesced);
  if (!coalesced->group) {
    return c10::make_intrusive<MessageWork>(getRank(), kWhat, coalesced->results, std::move(coalesced->messages),
                                            aftermath_, at::hasCallbacks());
  }
  auto work = make_work(kWhat, coalesced->tensors, coalesced->results);
  try {
    auto& on = stream();
    work->keep(coalesced->tensors);
    OverlapRecorder::Watch watch(overlap_recorder(), kWhat.name, coalesced->tensors, coalesced->results, on);
    auto core = coalesced->group->end();
    watch.issued();
    complete_later(work, std::move(core), on,
                   [lands = std::move(coalesced->lands), messages = std::move(coalesced->messages)] {
                     for (auto const& land : lands) land();
                     for (auto const& message : messages) message.wait();
                   });
  } catch (Error const& error) {
    aftermath_->rethrow(error);
  }
  return work;
}

void ProcessGroupWeft::drop_coalesced() {
  std::lock_guard const lock(calls_mutex_);
  coalescing_ = std::thread::id();
  coalesced_.reset();
}

c10::intrusive_ptr<ProcessGroupWork> ProcessGroupWeft::make_work(Operation const& what, at::TensorList inputs,
                                                                 at::TensorList results) {
  auto work = c10::make_intrusive<ProcessGroupWork>(getRank(), what, sequence_, results, inputs, at::hasCallbacks());
  // The recorder tells waiting from computing by which thread runs.
  if (stream_ && !overlap_recorder().is_on()) work->runs_on(stream_);
  return work;
}

}  // namespace weft::torch_backend
