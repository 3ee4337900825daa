#include "collectives/two_level/nccl_inside.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "collectives/communicator_bootstrap.hpp"
#include "collectives/device_access.hpp"
#include "collectives/host_order.hpp"
#include "collectives/nccl/failure_board.hpp"
#include "collectives/nccl/issuer.hpp"
#include "collectives/nccl/nccl_communicator.hpp"
#include "collectives/nccl/nccl_types.hpp"
#include "collectives/outcome.hpp"
#include "collectives/two_level/levels.hpp"
#include "collectives/two_level/plans.hpp"
#include "core/host_identity.hpp"
#include "core/log.hpp"
#include "runtime/cuda/check.hpp"
#include "weft/memory.hpp"

namespace weft::two_level {
namespace {

/// Collective: the names of all ranks' hosts.
std::vector<std::string> host_names(Options const& options, Bootstrap& ranks) {
  struct Name {
    char text[kMostHostIdCharacters + 1] = {};
  } mine;
  options.host.copy(mine.text, kMostHostIdCharacters);
  auto const bytes = ranks.all_gather(std::as_bytes(std::span(&mine, 1)));
  std::vector<std::string> names;
  for (int rank = 0; rank < ranks.size(); ++rank) {
    Name name;
    std::memcpy(&name, bytes.data() + static_cast<std::size_t>(rank) * sizeof name, sizeof name);
    names.emplace_back(name.text);
  }
  return names;
}

HostLayout find_hosts(Options const& options, Bootstrap& ranks) {
  auto names = host_names(options, ranks);
  if (options.spans) std::fill(names.begin(), names.end(), "");
  return {ranks.rank(), HostLayout::number(names)};
}

bool are_on_one_host(Options const& options, Bootstrap& ranks) {
  auto const names = host_names(options, ranks);
  return std::all_of(names.begin(), names.end(), [&](auto const& name) { return name == names.front(); });
}

std::shared_ptr<std::byte> allocate_scratch(nccl::Libraries const& libraries, std::size_t bytes) {
  auto const& cuda = *libraries.cuda;
  MemoryCharge charge(MemoryScope::current(MemoryKind::communication), bytes);
  cuda::DeviceGuard const guard(libraries.device, cuda);
  void* memory = nullptr;
  cuda::check(cuda, cuda.malloc(&memory, bytes), "cudaMalloc");
  return {static_cast<std::byte*>(memory), [&cuda, held = std::make_shared<MemoryCharge>(std::move(charge))](
                                               std::byte* pointer) { static_cast<void>(cuda.free(pointer)); }};
}

/// Such calls reduce: combined host by host, results may differ in their last bits from those in rank order.
bool is_reducing(Operation operation) noexcept {
  return operation == Operation::all_reduce || operation == Operation::reduce ||
         operation == Operation::reduce_scatter || operation == Operation::reduce_scatter_v;
}

/// The call's bytes over all ranks' parts.
std::size_t bytes_in_all(Call const& call, int ranks) noexcept {
  auto const operation = call.contract.operation;
  bool const of_each = operation == Operation::all_gather || operation == Operation::reduce_scatter;
  return call.bytes() * static_cast<std::size_t>(of_each ? ranks : 1);
}

class NcclInside final : public staged::Inside {
 public:
  NcclInside(std::shared_ptr<nccl::NcclCommunicator> communicator, std::optional<nccl::FailureBoard> board,
             std::unique_ptr<Levels const> levels, std::size_t flat_bytes, Reproducibility reproducibility)
      : communicator_(std::move(communicator)),
        board_(std::move(board)),
        levels_(std::move(levels)),
        order_(levels_->layout.hosts()),
        flat_bytes_(flat_bytes),
        reproducibility_(reproducibility) {}

  [[nodiscard]] std::unique_ptr<staged::Plan> plan(Call const& call) override {
    if (levels_->hosts() == 1) return has_nccl(call) ? direct(call) : nullptr;
    if (bytes_in_all(call, levels_->layout.size()) <= flat_bytes_ || !goes_by_hosts(call)) return nullptr;
    switch (call.contract.operation) {
      case Operation::all_reduce: return all_reduce(call, *levels_);
      case Operation::reduce: return reduce(call, *levels_);
      case Operation::broadcast: return broadcast(call, *levels_);
      case Operation::all_gather:
      case Operation::all_gather_v: return all_gather(call, *levels_);
      case Operation::reduce_scatter:
      case Operation::reduce_scatter_v: return reduce_scatter(call, *levels_);
      // Data from one rank to another crosses hosts once either way, and the limit is the root's own link.
      default: return nullptr;
    }
  }

  void issue(std::span<Call const> calls, cuda::CudaStream& on) override {
    if (calls.empty()) return;
    nccl::NcclCommunicator::Use const use(*communicator_);
    nccl::Issuer issuer(*communicator_, use.handle(), on, levels_->place(), static_cast<int>(levels_->places()),
                        levels_->scratch.get());
    issuer.begin_group();
    for (auto const& call : calls) issuer.issue(call);
    issuer.end_group();
    issuer.finish();
  }

  void tell(ErrorCode code, std::string const& reason) noexcept override {
    if (board_) board_->fail(code, reason);
  }
  [[nodiscard]] cuda::SharedFailure::Elsewhere told() const override {
    if (!board_) return {};
    return [board = *board_] { return board.error(); };
  }
  [[nodiscard]] std::optional<Error> failure() noexcept override {
    if (communicator_->is_stopped()) return std::nullopt;
    auto const state = communicator_->async_error();
    if (state == ncclSuccess || state == ncclInProgress) return std::nullopt;
    return Error(state == ncclRemoteError ? ErrorCode::peer_lost : ErrorCode::system,
                 fmt::format("rank {}: NCCL failed on {}: {}; NCCL_DEBUG=WARN says more", levels_->layout.rank(),
                             to_string(Device{DeviceType::cuda, communicator_->libraries().device}),
                             communicator_->nccl().get_error_string(state)));
  }
  void fail(ErrorCode code, std::string const& reason) noexcept override {
    if (levels_->across) DeviceAccess::fail(*levels_->across, code, reason);
  }
  void stop() noexcept override { communicator_->stop(); }
  void abort(std::function<bool()> const& enough) noexcept override { static_cast<void>(communicator_->abort(enough)); }

 private:
  /// Whether NCCL does the call. The same on all ranks.
  [[nodiscard]] bool has_nccl(Call const& call) const {
    if (call.contract.operation == Operation::barrier) return false;  // comparing the contracts is one already
    try {
      nccl::check_supported(call, reproducibility_);
    } catch (Error const&) {
      return false;
    }
    return true;
  }
  [[nodiscard]] bool goes_by_hosts(Call const& call) const {
    if (!is_reducing(call.contract.operation)) return true;
    auto const [dtype, op] = std::pair(call.contract.dtype, call.contract.reduce);
    return (is_exact(dtype, op) || order_.applies_to(dtype, op)) && has_nccl(call);
  }

  std::shared_ptr<nccl::NcclCommunicator> communicator_;
  std::optional<nccl::FailureBoard> board_;
  std::unique_ptr<Levels const> levels_;
  HostOrder const order_;
  std::size_t const flat_bytes_;
  Reproducibility const reproducibility_;
};

/// Options of a communicator of some of `host`'s ranks; its errors tell which ranks these are.
CommunicatorOptions named(Communicator const& host, std::vector<int> const& ranks) {
  auto with = host.options();
  with.config->backend.reset();  // each part chooses the back end that suits it
  with.name = fmt::format("between hosts, whose ranks from 0 are ranks {}", fmt::join(ranks, ", "));
  return with;
}

std::optional<Communicator> make_across(Communicator& host, Levels const& levels) {
  std::vector<int> ranks;
  for (std::size_t one = 0; one < levels.hosts(); ++one) ranks.push_back(levels.rank_on(one));
  return host.split(levels.place(), levels.host(), named(host, ranks));
}

/// Calls also work without a board: failures are then heard of only through the host communicator.
std::optional<nccl::FailureBoard> make_board(Bootstrap& ranks) {
  try {
    return nccl::FailureBoard::create(ranks);
  } catch (Error const& error) {
    log(LogLevel::info,
        fmt::format("rank {} of a host's shares no memory with the others: {}", ranks.rank(), error.what()));
    return std::nullopt;
  }
}

struct Nccl {
  std::shared_ptr<nccl::NcclCommunicator> communicator;
  std::optional<nccl::FailureBoard> board;
};

Nccl make_nccl(Options const& options, Communicator& host, Levels const& levels) {
  auto locals = host.split(levels.host(), levels.place(), named(host, levels.layout.locals()));
  CommunicatorBootstrap ranks(*locals, nullptr);
  Nccl made;
  made.communicator = nccl::NcclCommunicator::create(options.libraries, ranks, host.options().config->timeout);
  if (are_on_one_host(options, ranks)) made.board = make_board(ranks);
  return made;
}

}  // namespace

std::unique_ptr<staged::Inside> nccl_inside(Options const& options, Communicator& host) {
  CommunicatorBootstrap ranks(host, nullptr);
  auto levels = std::make_unique<Levels>(find_hosts(options, ranks));
  if (levels->hosts() > 1 && (levels->places() == 1 || !levels->layout.is_even())) return nullptr;
  if (levels->hosts() > 1) levels->across = make_across(host, *levels);
  // As large as half a slot.
  levels->region_bytes = staged::Staging::region_for(options.chunk_bytes, host.size());
  Nccl made;
  Outcome mine;
  try {
    levels->scratch = allocate_scratch(options.libraries, staged::Staging::kSlots * levels->region_bytes);
  } catch (Error const& error) {
    mine = Outcome::of(error);
  }
  agree(ranks, mine);
  try {
    made = make_nccl(options, host, *levels);
  } catch (Error const& error) {
    mine = Outcome::of(error);
  }
  agree(ranks, mine);  // fails here if any other host failed
  return std::make_unique<NcclInside>(std::move(made.communicator), std::move(made.board), std::move(levels),
                                      options.flat_bytes, host.options().reproducibility);
}

}  // namespace weft::two_level
