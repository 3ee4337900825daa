#include <exception>
#include <mutex>
#include <thread>

#include "harness/ranks.hpp"
#include "weft/error.hpp"

namespace weft::test {
namespace {

/// Keeps the failure to report: the earliest one that is a cause, else the earliest.
class Failures {
 public:
  void add(std::exception_ptr failure, bool consequence) {
    std::lock_guard lock(mutex_);
    std::exception_ptr& kept = consequence ? consequence_ : cause_;
    if (!kept) kept = failure;
  }
  void rethrow() const {
    if (cause_) std::rethrow_exception(cause_);
    if (consequence_) std::rethrow_exception(consequence_);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr cause_;
  std::exception_ptr consequence_;
};

}  // namespace

void run_thread_bootstraps(int ranks, std::function<void(std::shared_ptr<Bootstrap>)> const& body,
                           Config const& config) {
  std::vector<std::shared_ptr<Bootstrap>> bootstraps = thread_bootstraps(ranks, config);
  Failures failures;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    // Each thread owns its bootstrap, so that a rank that ends early is seen to have left.
    threads.emplace_back([&body, &failures, mine = std::move(bootstraps[static_cast<std::size_t>(rank)])]() mutable {
      try {
        body(std::move(mine));
      } catch (Error const& error) {
        bool const consequence = error.code() == ErrorCode::peer_lost || error.code() == ErrorCode::aborted;
        failures.add(std::current_exception(), consequence);
      } catch (...) {
        failures.add(std::current_exception(), false);
      }
      mine.reset();
    });
  }
  for (std::thread& thread : threads) thread.join();
  failures.rethrow();
}

void run_thread_ranks(int ranks, std::function<void(Communicator&)> const& body, CommunicatorOptions const& options) {
  run_thread_bootstraps(
      ranks,
      [&](std::shared_ptr<Bootstrap> bootstrap) {
        Communicator communicator = Communicator::create(std::move(bootstrap), options);
        body(communicator);
      },
      options.config.value_or(Config{}));
}

}  // namespace weft::test
