#pragma once

#include <weft/weft.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace weft::test {

/// The time limit of calls that are to fail by it: long enough for ranks of a loaded machine to tell what they wait
/// for.
inline constexpr std::chrono::milliseconds kImpatience{4000};
/// What takes longer was not noticed, but given up: communicators have a minute.
inline constexpr std::chrono::milliseconds kLate{40'000};

/// The job's ranks, and communicators between them as the command line says.
struct Job {
  std::shared_ptr<Bootstrap> bootstrap;
  CommunicatorOptions options;  ///< of the backend under test
  std::string hosts;            ///< a letter for every rank
  int cases = 100;
  std::uint64_t seed = 20;

  [[nodiscard]] int rank() const { return bootstrap->rank(); }
  [[nodiscard]] int size() const { return bootstrap->size(); }
  [[nodiscard]] Communicator create(std::chrono::milliseconds timeout = std::chrono::milliseconds(60'000)) const {
    auto with = options;
    with.config->timeout = timeout;
    return Communicator::create(bootstrap, with);
  }
};

/// @throws std::runtime_error that says `what`, unless `condition`.
void require(bool condition, std::string const& what);
/// The same unless `body` throws an Error of `code` that says `words`.
void expect_error(ErrorCode code, std::string const& words, std::function<void()> const& body);
/// The sum of a 1 of every rank.
float all_reduce_one(Communicator& world, CollectiveOptions const& how = {});

}  // namespace weft::test
