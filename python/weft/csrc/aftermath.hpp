#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "weft/error.hpp"
#include "weft/stream.hpp"

namespace weft::torch_backend {

/// Throws torch's equivalent.
[[noreturn]] void throw_as_torch(Error const& error);

/// What comes after a call, shared by a group and its Works: errors as torch's, and threads for what users chain on
/// futures. That may wait for further operations of the same group, so it must hold up neither the group's stream nor
/// one another: each piece gets a thread that nothing else runs on at the time. Every member may be called from any
/// thread.
class Aftermath : public std::enable_shared_from_this<Aftermath> {
 public:
  /// Throws torch's equivalent, which tells the group's description too, and remembers failures of the group for
  /// error().
  [[noreturn]] void rethrow(Error const& error);
  /// The same for what was caught; null stays null, and what is not Weft's stays as it is.
  [[nodiscard]] std::exception_ptr translated(std::exception_ptr const& error);
  /// The first failure so far.
  [[nodiscard]] c10d::ErrorType error() const noexcept { return error_.load(); }

  /// What the program calls the group, which torch says only once the group is made.
  void set_description(std::string const& description);

  void run(std::function<void()> task);
  /// Waits for what runs, and ends the threads. Not from one of them.
  void finish();

 private:
  struct Thread {
    Stream stream;
    bool busy = true;
  };
  [[nodiscard]] Thread& take();
  [[nodiscard]] std::string description();

  std::atomic<c10d::ErrorType> error_{c10d::ErrorType::SUCCESS};
  std::mutex mutex_;
  std::string description_;
  std::list<Thread> threads_;
};

}  // namespace weft::torch_backend
