#include <pthread.h>
#include <semaphore.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>

#include "collectives/flight/flight_recorder.hpp"
#include "collectives/flight/flight_registry.hpp"
#include "core/log.hpp"
#include "weft/flight_recorder.hpp"

namespace weft {
namespace {

// What the handler needs. A signal handler gets no argument of its own, so these are global. They change only while the
// handler is not installed.
sem_t g_wake;  // wakes the listener; not a file descriptor, since some programs close every descriptor they find
std::atomic<bool> g_stop{false};
std::atomic<pid_t> g_owner{0};   // the listener's process: a forked child inherits the handler but not the listener
struct sigaction g_previous {};  // what SIGUSR2 did before
std::atomic<pid_t> g_chains{0};  // the thread that is inside g_previous, which may call this handler again

static_assert(std::atomic<pid_t>::is_always_lock_free);

/// Only async-signal-safe calls.
void on_signal(int signal, siginfo_t* info, void* context) {
  int const saved = errno;
  auto const self = static_cast<pid_t>(::syscall(SYS_gettid));
  if (g_chains.load() == self) return;  // called by a handler that was installed over this one, and that this one calls
  if (g_owner.load() == ::getpid()) sem_post(&g_wake);
  g_chains.store(self);
  if ((g_previous.sa_flags & SA_SIGINFO) != 0) {
    g_previous.sa_sigaction(signal, info, context);
  } else if (g_previous.sa_handler != SIG_DFL && g_previous.sa_handler != SIG_IGN) {
    g_previous.sa_handler(signal);
  }
  g_chains.store(0);
  errno = saved;
}

bool is_ours(struct sigaction const& action) noexcept {
  return (action.sa_flags & SA_SIGINFO) != 0 && action.sa_sigaction == on_signal;
}

void dump_all_and_log() noexcept {
  try {
    for (auto const& path : dump_flight_recorders()) log(LogLevel::info, "last calls written to " + path);
  } catch (std::exception const& trouble) {
    log(LogLevel::warn, trouble.what());
  }
}

std::thread start_without_signals(void (*body)()) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  std::thread thread(body);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace

std::vector<std::string> dump_flight_recorders() {
  std::vector<std::string> paths;
  std::exception_ptr failure;
  for (auto const& recorder : registered_flight_recorders()) {
    try {
      paths.push_back(recorder->dump("request").string());
    } catch (Error const&) {
      if (!failure) failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
  return paths;
}

/// Installs the handler, and has the thread that the handler wakes to write the dumps.
class FlightDumpSignal::Listener {
 public:
  Listener() : process_(::getpid()) {
    std::scoped_lock const lock(changing());
    g_stop = false;
    sem_init(&g_wake, 0, 0);
    thread_ = std::make_unique<std::thread>(start_without_signals(listen));
    g_owner = process_;
    struct sigaction current {};
    sigaction(SIGUSR2, nullptr, &current);
    if (is_ours(current)) return;  // inherited through fork(), together with g_previous
    g_previous = current;
    struct sigaction action {};
    action.sa_sigaction = on_signal;
    action.sa_flags = SA_SIGINFO | SA_RESTART;
    sigemptyset(&action.sa_mask);
    sigaction(SIGUSR2, &action, nullptr);
  }

  ~Listener() {
    if (process_ != ::getpid()) {  // a forked child's copy: the thread does not exist here
      (void)thread_.release();     // NOLINT(bugprone-unused-return-value): nothing to join
      return;
    }
    std::scoped_lock const lock(changing());
    struct sigaction current {};
    sigaction(SIGUSR2, nullptr, &current);
    if (is_ours(current)) sigaction(SIGUSR2, &g_previous, nullptr);
    g_owner = 0;
    g_stop = true;
    sem_post(&g_wake);
    thread_->join();
  }
  Listener(Listener const&) = delete;
  Listener& operator=(Listener const&) = delete;

  /// The process's one listener, made when there is none.
  static std::shared_ptr<Listener> get() {
    static std::mutex mutex;
    static std::weak_ptr<Listener> current;
    std::scoped_lock const lock(mutex);
    auto listener = current.lock();
    if (!listener || listener->process_ != ::getpid()) {
      listener = std::make_shared<Listener>();
      current = listener;
    }
    return listener;
  }

 private:
  /// Held while the handler changes: a Listener may still be ending when the next one is made.
  static std::mutex& changing() {
    static std::mutex mutex;
    return mutex;
  }

  static void listen() {
    for (;;) {
      while (sem_wait(&g_wake) != 0) continue;
      if (g_stop) return;
      while (sem_trywait(&g_wake) == 0) continue;  // one dump for all that came meanwhile
      if (g_stop) return;
      dump_all_and_log();
    }
  }

  pid_t process_;
  std::unique_ptr<std::thread> thread_;
};

FlightDumpSignal::FlightDumpSignal() : listener_(Listener::get()) {}
FlightDumpSignal::~FlightDumpSignal() = default;

}  // namespace weft
