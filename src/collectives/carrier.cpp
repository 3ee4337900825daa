#include "collectives/carrier.hpp"

#if WEFT_WITH_MPI && WEFT_WITH_UCX

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "collectives/p2p/measure_network.hpp"
#include "collectives/ucx/ucx_backend.hpp"
#include "core/copy_text.hpp"
#include "core/mpi_members.hpp"
#include "core/mpi_session.hpp"
#include "transport/mpi/mpi_transport.hpp"
#include "weft/error.hpp"

namespace weft {
namespace {

/// How long UCX may take to connect. Where packets to other ranks are dropped, only this limit ends the attempt.
constexpr std::chrono::milliseconds kConnectIn{10'000};
/// UCX may take so many times as long as MPI and is still chosen: its calls notice failures, and overlap both
/// directions.
constexpr double kLongerForFewBytes = 2;
constexpr double kLongerForMany = 1.25;
constexpr double kManyBytes = 1 << 20;
/// A result against UCX is measured so many times more: a few exchanges may all be slow by chance, as where ranks share
/// a core.
constexpr int kSecondLooks = 2;

struct Verdicts {
  std::mutex mutex;
  std::map<std::pair<int, int>, CarrierChoice> known;  // by number of ranks and of hosts
};

Verdicts& verdicts() {
  static Verdicts instance;
  return instance;
}

template <typename T>
std::vector<T> tell_all(Bootstrap& bootstrap, T const& mine) {
  auto const raw = bootstrap.all_gather(std::as_bytes(std::span(&mine, 1)));
  std::vector<T> all(static_cast<std::size_t>(bootstrap.size()));
  std::memcpy(static_cast<void*>(all.data()), raw.data(), raw.size());
  return all;
}

/// How one rank's attempt went, in bytes that ranks can exchange.
struct Attempt {
  bool succeeded = true;
  char why_not[240] = {};

  void fail(char const* why) {
    succeeded = false;
    copy_text(why, why_not);
  }
};

/// Collective: why the attempt of some rank failed; nothing where all succeeded.
std::optional<std::string> why_not(Bootstrap& bootstrap, Attempt const& mine) {
  auto const all = tell_all(bootstrap, mine);
  auto const bad = std::find_if(all.begin(), all.end(), [](Attempt const& each) { return !each.succeeded; });
  if (bad == all.end()) return std::nullopt;
  return fmt::format("rank {}: {}", bad - all.begin(), bad->why_not);
}

/// A back end that connects all ranks over UCX, or the reason why there is none.
struct Trial {
  std::unique_ptr<ucx::UcxBackend> backend;
  std::string why_not;
  bool is_there = false;  ///< every rank has UCX
};

/// Goes step by step: each one succeeds on all ranks, or the trial ends on all.
Trial try_ucx(Bootstrap& bootstrap, CommunicatorOptions options, RankHosts const& hosts) {
  options.config->timeout = std::min(options.config->timeout, kConnectIn);
  options.config->explain = false;
  Trial trial;
  auto const step = [&](auto const& attempt) {
    Attempt mine;
    try {
      attempt();
    } catch (Error const& error) {
      mine.fail(error.what());
    }
    auto const failed = why_not(bootstrap, mine);
    trial.why_not = failed.value_or("");
    return !failed;
  };
  trial.is_there = step([&] { ucx::UcxBackend::require(options, hosts); });
  if (!trial.is_there) return trial;
  if (!step([&] { trial.backend = ucx::UcxBackend::connect(bootstrap, options, hosts); })) trial.backend.reset();
  return trial;
}

CarrierChoice compare(p2p::NetworkCosts const& by_ucx, p2p::NetworkCosts const& by_mpi) {
  auto const many = [](p2p::NetworkCosts const& costs) { return costs.alpha_s + costs.beta_s_per_byte * kManyBytes; };
  auto const is_slower =
      by_ucx.alpha_s > kLongerForFewBytes * by_mpi.alpha_s || many(by_ucx) > kLongerForMany * many(by_mpi);
  return {is_slower ? Carrier::mpi : Carrier::ucx,
          fmt::format("8 B take {:.3g} us by UCX and {:.3g} by MPI, 1 MiB {:.4g} and {:.4g}", by_ucx.alpha_s * 1e6,
                      by_mpi.alpha_s * 1e6, many(by_ucx) * 1e6, many(by_mpi) * 1e6)};
}

p2p::NetworkCosts least(p2p::NetworkCosts const& one, p2p::NetworkCosts const& other) {
  return {std::min(one.alpha_s, other.alpha_s), std::min(one.beta_s_per_byte, other.beta_s_per_byte)};
}

CarrierChoice find_out(Bootstrap& bootstrap, CommunicatorOptions const& options, RankHosts const& hosts, int tag) {
  auto trial = try_ucx(bootstrap, options, hosts);
  auto const ucx = std::move(trial.backend);
  if (!ucx) return {Carrier::mpi, std::move(trial.why_not), trial.is_there};
  auto const measures = std::uint8_t{options.config->tuning_cache && !options.config->host_id};
  if (tell_all(bootstrap, measures).front() == 0) return {Carrier::ucx, "it connects all ranks; nothing was measured"};
  auto const members = bootstrap.join_mpi();
  if (!members) return {Carrier::ucx, "MPI has not started the ranks"};
  ucx->find_costs(bootstrap, options, hosts);
  mpi::MpiTransport by_mpi(MpiCommunicator::of(*members->parent, members->ranks, tag), options.config->timeout);
  auto const distance = p2p::farthest(hosts.numbers);
  auto ucx_costs = ucx->costs();
  auto mpi_costs = p2p::measure_network(by_mpi, distance);
  auto choice = compare(ucx_costs, mpi_costs);
  for (int look = 0; look < kSecondLooks && choice.carrier == Carrier::mpi; ++look) {
    ucx_costs = least(ucx_costs, ucx->measure(distance));
    mpi_costs = least(mpi_costs, p2p::measure_network(by_mpi, distance));
    choice = compare(ucx_costs, mpi_costs);
  }
  return choice;
}

}  // namespace

CarrierChoice choose_carrier(Bootstrap& bootstrap, CommunicatorOptions const& options, RankHosts const& hosts,
                             int tag) {
  auto const several = *std::max_element(hosts.numbers.begin(), hosts.numbers.end()) + 1;
  auto const key = std::pair(bootstrap.size(), several);
  std::optional<CarrierChoice> known;
  {
    std::lock_guard const lock(verdicts().mutex);
    auto const found = verdicts().known.find(key);
    if (found != verdicts().known.end()) known = found->second;
  }
  enum class Known : std::uint8_t { nothing, mpi, ucx };
  auto const of = [](CarrierChoice const& choice) { return choice.carrier == Carrier::mpi ? Known::mpi : Known::ucx; };
  auto const all = tell_all(bootstrap, known ? of(*known) : Known::nothing);
  auto const agreed = std::all_of(all.begin(), all.end(), [&](Known each) { return each == all.front(); });
  if (agreed && known) return *known;  // ranks that learned it in different communicators may differ
  auto choice = find_out(bootstrap, options, hosts, tag);
  std::lock_guard const lock(verdicts().mutex);
  verdicts().known.insert_or_assign(key, choice);
  return choice;
}

}  // namespace weft

#else

namespace weft {

CarrierChoice choose_carrier(Bootstrap& /*bootstrap*/, CommunicatorOptions const& /*options*/,
                             RankHosts const& /*hosts*/, int /*tag*/) {
  return {Carrier::mpi, "Weft was built without UCX"};
}

}  // namespace weft

#endif
