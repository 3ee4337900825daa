#include "collectives/ucx/ucx_backend.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "collectives/merged_call.hpp"
#include "collectives/ucx/leftover.hpp"
#include "collectives/ucx/network_memory.hpp"
#include "collectives/ucx/pause.hpp"
#include "transport/ucx/net_devices.hpp"
#include "weft/buffer.hpp"

namespace weft::ucx {
namespace {

/// What a rank tells the others when all allocate symmetric memory.
struct Answer {
  bool is_exhausted = false;
  bool wants_window = false;
  std::uint64_t first_held = 0;
};

/// Whether each rank knows the sizes of its own parts only.
bool has_private_parts(Operation operation) noexcept {
  return has_unequal_parts(operation) && !has_parts_in_common(operation);
}

}  // namespace

Purpose UcxBackend::purpose_of(Call const& call) const {
  Purpose purpose;
  purpose.timeout = call.timeout;
  purpose.describe = [&call] { return weft::describe(call); };
  purpose.sequence = call.sequence;
  purpose.beside_computation = call.on_stream && !call.waited_for;
  if (purpose.beside_computation) {
    purpose.pause = pause_between_looks(call.bytes(), tuning_.chunk_bytes, network_.beta_s_per_byte);
  }
  return purpose;
}

void UcxBackend::require(CommunicatorOptions const& options, RankHosts const& hosts) {
  auto const devices = choose_net_devices(options.config->net_devices, hosts.are_several_machines());
  Worker const worker(devices, options.config->rma, static_cast<int>(hosts.numbers.size()), [](auto const&) {});
}

std::unique_ptr<UcxBackend> UcxBackend::create(Bootstrap& bootstrap, CommunicatorOptions const& options,
                                               RankHosts const& hosts, HostOrder order, bool is_outer) {
  auto backend = connect(bootstrap, options, hosts, std::move(order), is_outer);
  backend->find_costs(bootstrap, options, hosts);
  return backend;
}

std::unique_ptr<UcxBackend> UcxBackend::connect(Bootstrap& bootstrap, CommunicatorOptions const& options,
                                                RankHosts const& hosts, HostOrder order, bool is_outer) {
  ChannelOptions channel;
  channel.spin = options.config->spin;
  channel.progress = options.progress;
  channel.devices = choose_net_devices(options.config->net_devices, hosts.are_several_machines());
  channel.hosts = hosts;
  channel.rma = options.config->rma && !is_outer;
  auto backend = std::make_unique<UcxBackend>(bootstrap, options, channel, std::move(order), is_outer);
  // Finds connections that cannot be made now; later they would be mistaken for lost ranks.
  Call call;
  call.timeout = options.config->timeout;
  Purpose purpose;
  purpose.timeout = options.config->timeout;
  purpose.describe = [] { return std::string("connecting over UCX"); };
  backend->channel_.connect(purpose);
  backend->announcer_.announce(purpose, call);
  backend->transport_.set_purpose(purpose);
  return backend;
}

void UcxBackend::find_costs(Bootstrap& bootstrap, CommunicatorOptions const& options, RankHosts const& hosts) {
  network_ = ucx::find_costs(bootstrap, transport_, options, devices_, hosts.numbers);
  chosen_.fill({});
}

UcxBackend::UcxBackend(Bootstrap& bootstrap, CommunicatorOptions const& options, ChannelOptions const& channel,
                       HostOrder hosts, bool is_outer)
    : hosts_(std::move(hosts)),
      is_outer_(is_outer),
      rma_(channel.rma),
      devices_(channel.devices),
      channel_(bootstrap, channel),
      announcer_(channel_),
      transport_(channel_) {
  windows_ = std::make_shared<Windows>(channel_);
  if (options.config->explain && rank() == 0) explainer_ = std::make_unique<Explainer>("ucx", size());
}

UcxBackend::~UcxBackend() {
  for (auto const& leftover : leftovers_) leftover->abandon(channel_.worker());
  windows_->close();
}

void UcxBackend::leave_behind(std::shared_ptr<Leftover> leftover) {
  std::lock_guard const lock(leftovers_mutex_);
  std::erase_if(leftovers_, [](auto const& each) { return each->is_done(); });
  leftovers_.push_back(std::move(leftover));
}

void UcxBackend::run(Call const& call) {
  auto const purpose = purpose_of(call);
  channel_.enter(purpose);
  try {
    run_checked(call, purpose);
  } catch (std::bad_alloc const&) {  // fails all ranks, because the others wait for this one
    channel_.fail_with(ErrorCode::out_of_memory, p2p::describe_exhaustion(rank(), call));
  }
}

void UcxBackend::barrier(Call const& call) {  // inside a hierarchy, `call` may announce another operation
  auto const purpose = purpose_of(call);
  channel_.enter(purpose);
  announcer_.announce(purpose, call);
}

void UcxBackend::abort(std::string const& reason) noexcept {
  channel_.fail(ErrorCode::aborted, fmt::format("aborted by rank {}: {}", rank(), reason));
}

Transport& UcxBackend::within(Call const& call) {
  transport_.set_purpose(purpose_of(call));
  return transport_;
}

void UcxBackend::look_around(Call const& inside, int peer, std::function<bool()> const& ready,
                             std::chrono::nanoseconds waited) {
  channel_.look_around(purpose_of(inside), ready, peer, waited);
}

void UcxBackend::run_checked(Call const& call, Purpose const& purpose) {
  auto const choice = choose(call);
  if (is_small(call, choice.seconds)) return run_small(call, purpose);
  transport_.set_purpose(purpose);
  if (wants_puts(call)) {
    if (run_puts(call, purpose)) return;
  } else {
    announcer_.announce(purpose, call);
  }
  if (has_private_parts(call.contract.operation)) agree_on_parts(call);
  explain(call, choice.algorithm.name, [&] {
    return fmt::format("{:.3g} us by its formula, for {} where a message takes {:.3g} us and {:.3g} us a MiB",
                       choice.seconds * 1e6, describe_bytes(call.bytes()), network_.alpha_s * 1e6,
                       network_.beta_s_per_byte * 1e6 * (1 << 20));
  });
  p2p::run(choice.algorithm, transport_, call, tuning_);
}

p2p::Choice UcxBackend::choose(Call const& call) {
  PackedContract const contract(call.contract);
  auto const bytes = call.bytes();
  static_assert(std::tuple_size_v<decltype(chosen_)> == 16);
  auto& chosen = chosen_[(bytes * 0x9e3779b97f4a7c15U) >> 60U];
  if (chosen.algorithm != nullptr && chosen.bytes == bytes && chosen.contract == contract) {
    return {*chosen.algorithm, chosen.seconds};
  }
  p2p::CostQuestion question;
  question.alpha_s = network_.alpha_s;
  question.beta_s_per_byte = network_.beta_s_per_byte;
  question.gamma_s_per_byte = gamma_s_per_byte_;
  question.ranks = size();
  question.chunk_bytes = static_cast<double>(tuning_.chunk_bytes);
  question.message_s = p2p::kMessageSeconds;
  auto const choice = p2p::choose(call, question, true);
  chosen = {contract, bytes, &choice.algorithm, choice.seconds};
  return choice;
}

void UcxBackend::agree_on_parts(Call const& call) {
  struct Finding {
    std::uint64_t contradicted = 0;
    std::uint64_t from = 0;
    std::uint64_t gives = 0;
    std::uint64_t gets = 0;
  };
  auto const operation = call.contract.operation;
  auto const root = static_cast<int>(call.contract.root);
  auto const length = [&](Operation to_root, Parts const& parts, int peer) -> std::uint64_t {
    if (operation == Operation::all_to_all_v) return call.part(parts, peer).length;
    if (operation == to_root) return peer == root ? call.own_bytes : 0;
    return call.is_root(rank()) ? call.part(parts, peer).length : 0;
  };
  std::vector<std::uint64_t> gives;
  std::vector<std::uint64_t> gets;
  for (int peer = 0; peer < size(); ++peer) {
    gives.push_back(length(Operation::gather_v, call.send_parts, peer));
    gets.push_back(length(Operation::scatter_v, call.recv_parts, peer));
  }
  std::vector<std::uint64_t> given(ranks());
  Call tell;
  tell.contract = {.count = 1, .operation = Operation::all_to_all, .dtype = DataType::u64};
  tell.send = gives.data();
  tell.recv = given.data();
  p2p::run(*p2p::find_algorithm(Operation::all_to_all, "bruck"), transport_, tell);

  Finding mine;
  for (std::size_t peer = ranks(); peer-- > 0;) {
    if (given[peer] != gets[peer]) mine = {1, peer, given[peer], gets[peer]};
  }
  std::vector<Finding> findings(ranks());
  Call share;
  share.contract = {.count = sizeof mine, .operation = Operation::all_gather, .dtype = DataType::u8};
  share.send = &mine;
  share.recv = findings.data();
  p2p::run(*p2p::find_algorithm(Operation::all_gather, "bruck"), transport_, share);
  std::size_t worst = 0;  // the rank with the contradiction whose giver is the lowest
  for (std::size_t to = 0; to < ranks(); ++to) {
    auto const& best = findings[worst];
    if (findings[to].contradicted > best.contradicted ||
        (findings[to].contradicted == 1 && findings[to].from < best.from)) {
      worst = to;
    }
  }
  auto const& found = findings[worst];
  if (found.contradicted == 0) return;
  throw Error(ErrorCode::mismatch,
              fmt::format("{}: rank {} gives rank {} {} bytes, which expects {}; nothing was moved, make the counts "
                          "equal",
                          describe(call), found.from, worst, found.gives, found.gets));
}

void UcxBackend::merged(MergedCall const& calls) {
  if (explainer_) explainer_->note(calls, "any memory", "merged, flat", "copied to and from one plain call");
  run_flat(*this, calls, rank(), size(), flat_, [&](Call const& flat) { calls.run_plain(*this, flat); });
}

std::shared_ptr<void> UcxBackend::allocate(Call const& call) {
  auto const purpose = purpose_of(call);
  channel_.enter(purpose);
  Buffer memory;
  Answer mine;
  mine.wants_window = rma_;
  mine.first_held = windows_->first_held();
  try {
    memory = Buffer::host(call.contract.count, call.contract.dtype);
  } catch (Error const&) {
    mine.is_exhausted = true;
  }
  announcer_.exchange(purpose, call, &mine, sizeof mine);
  bool all_want = true;
  auto first_held = mine.first_held;
  for (int peer = 0; peer < size(); ++peer) {
    Answer theirs;
    std::memcpy(&theirs, announcer_.block_of(peer), sizeof theirs);
    all_want = all_want && theirs.wants_window;
    first_held = std::min(first_held, theirs.first_held);
    if (theirs.is_exhausted) {
      throw Error(ErrorCode::out_of_memory, fmt::format("{}: rank {} has no {} bytes left; free memory or ask for less",
                                                        describe(call), peer, call.bytes()));
    }
  }
  if (!all_want || size() == 1) return memory.owner();
  windows_->forget_before(first_held);
  transport_.set_purpose(purpose);
  try {
    return make_window(memory.owner(), call.bytes());
  } catch (std::bad_alloc const&) {  // fails all ranks, because the others wait for this one
    channel_.fail_with(
        ErrorCode::out_of_memory,
        fmt::format("rank {}: {}: no memory left to have others write to it; free memory or ask for less", rank(),
                    describe(call)));
  }
}

}  // namespace weft::ucx
