#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "weft/error.hpp"
#include "weft/stream.hpp"

namespace weft::torch_backend {

/// Throws torch's equivalent of a Weft error.
[[noreturn]] void throw_as_torch(Error const& error);

/// What comes after a call, shared by a group and its Works: the translation of errors into torch's, and threads for
/// the callbacks that users chain on futures. A callback may wait for further operations of the same group, so it must
/// block neither the group's stream nor other callbacks: each gets a thread on which nothing else runs meanwhile. Any
/// thread.
class Aftermath : public std::enable_shared_from_this<Aftermath> {
 public:
  /// Throws torch's equivalent, whose text also has the group's description. Remembers failures of the group for
  /// error().
  [[noreturn]] void rethrow(Error const& error);
  /// The same for a caught exception: returns torch's equivalent. Null and exceptions that are not Weft's stay as they
  /// are.
  [[nodiscard]] std::exception_ptr translated(std::exception_ptr const& error);
  /// The first failure so far.
  [[nodiscard]] c10d::ErrorType error() const noexcept { return error_.load(); }

  /// Sets the program's name for the group, which torch tells only after the group is made.
  void set_description(std::string const& description);

  void run(std::function<void()> task);
  /// Waits for running tasks, and ends the threads. If one of these threads calls this itself, because a callback
  /// destroys the group, that thread goes on.
  void finish();

 private:
  struct Thread {
    Stream stream;
    bool busy = true;
    std::thread::id runner{};  ///< while something runs
  };
  void set_runner(Thread& thread, std::thread::id runner);
  [[nodiscard]] Thread& take();
  [[nodiscard]] std::string description();

  std::atomic<c10d::ErrorType> error_{c10d::ErrorType::SUCCESS};
  std::mutex mutex_;
  std::string description_;
  std::list<Thread> threads_;
};

}  // namespace weft::torch_backend
